"""What an ended process has left in a folder of recordings, and files that do not belong to its database."""

from __future__ import annotations

import contextlib
import re

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fastflight.errors import StorageError
from fastflight.files import UNFINISHED
from fastflight.log.bodies import PARQUET_END, SEQ_COLUMN, log_of
from fastflight.log.disk import DATABASE, LocalDisk
from fastflight.log.reading import Content, LogReader
from fastflight.log.values import Range

PARQUET_NAME = re.compile(r"(\d{12})\.parquet")


def remove_leftovers(disk: LocalDisk, content: Content) -> list[int]:
    """Remove files that no body names. Return the oldest bodies of logs, if somebody has deleted their files.

    Raises `StorageError` for a file with rows that the database does not have: it belongs to another one. Nothing is
    removed then.
    """
    bodies = content.database.bodies()
    names = set(disk.names())
    unknown = sorted(filter(PARQUET_NAME.fullmatch, names.difference(body.file for body in bodies if body.file)))
    for name in unknown:
        if not _is_copy(disk, content, name):
            raise StorageError(
                f"{DATABASE} does not have the rows of {len(unknown)} Parquet files",
                where=name,
                hint=f"They are kept as they are. Put their own {DATABASE} back, or move them out of the folder",
            )
    for name in [*unknown, *(name for name in names if name.endswith(UNFINISHED))]:
        with contextlib.suppress(OSError):
            disk.remove(name)
    gone: list[int] = []
    kept: set[int] = set()
    for body in bodies:
        if body.file is not None and body.log is not None:
            if body.file not in names and body.log not in kept:
                gone.append(body.id)
            else:
                kept.add(body.log)
    return gone


def _is_copy(disk: LocalDisk, content: Content, name: str) -> bool:
    """Whether the database has all rows of a Parquet file, or the file was never finished.

    A compaction that was interrupted leaves such files.
    """
    try:
        data = disk.read(name)
        if not data.endswith(PARQUET_END):
            return True
        log, every = log_of(data), pq.read_table(pa.BufferReader(data), columns=[SEQ_COLUMN]).column(0)
    except (OSError, pa.ArrowException, ValueError):
        return False
    for row in content.database.logs(log):
        numbers = every.filter(pc.greater_equal(every, pa.scalar(row.first, pa.uint64())))
        bounds = pc.min_max(numbers).as_py()
        stored = LogReader(content, row.id, log).extents(Range(bounds["min"], bounds["max"]))
        return sum(extent.rows for extent in stored) >= len(numbers)
    return False
