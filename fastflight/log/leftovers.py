"""What an ended process has left in a folder of recordings, and files that do not belong to its database."""

from __future__ import annotations

import contextlib
import re

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fastflight.errors import StorageError
from fastflight.files import UNFINISHED
from fastflight.log.bodies import LOG_COLUMN, SEQ_COLUMN
from fastflight.log.database import Database
from fastflight.log.disk import DATABASE, LocalDisk

PARQUET_NAME = re.compile(r"(\d{12})\.parquet")
PARQUET_END = b"PAR1"
# How many rows of a log, from the first that was not deleted, have numbers from `low` on and below `high`.
_STORED = """
select coalesce(sum(min(batches.first + rows, :high) - max(batches.first, :low, logs.first)), 0)
from batches join logs on logs.id = batches.log
where name = :log and batches.first < :high and batches.first + rows > max(:low, logs.first)
"""


def remove_leftovers(disk: LocalDisk, database: Database) -> list[int]:
    """Remove files that no body names. Return the oldest bodies of logs, if somebody has deleted their files.

    Raises `StorageError` for a file with rows that the database does not have: it belongs to another one. Nothing is
    removed then.
    """
    bodies = {position.id for position in database.positions(limit=-1)}
    names = set(disk.names())
    unknown = sorted(name for name in names if (found := PARQUET_NAME.fullmatch(name)) and int(found[1]) not in bodies)
    for name in unknown:
        if not _is_copy(disk, database, name):
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
    for body in database.bodies():
        if body.file is not None and body.log is not None:
            if body.file not in names and body.log not in kept:
                gone.append(body.id)
            else:
                kept.add(body.log)
    return gone


def _is_copy(disk: LocalDisk, database: Database, name: str) -> bool:
    """Whether the database has all rows of a Parquet file, or the file was never finished.

    A compaction that was interrupted leaves such files.
    """
    try:
        content = disk.read(name)
        if not content.endswith(PARQUET_END):
            return True
        rows = pq.read_table(pa.BufferReader(content), columns=[LOG_COLUMN, SEQ_COLUMN])
    except (OSError, pa.ArrowException):
        return False
    with database.reading() as connection:
        for log in rows.column(0).unique().to_pylist():
            numbers = rows.filter(pc.equal(rows.column(0), log)).column(1)
            bounds = pc.min_max(numbers).as_py()
            asked = {"log": log, "low": bounds["min"], "high": bounds["max"] + 1}
            (stored,) = connection.execute(_STORED, asked).fetchone()
            (first,) = connection.execute("select max(first) from logs where name = ?", (log,)).fetchone()
            if first is None or stored < pc.sum(pc.greater_equal(numbers, pa.scalar(first, numbers.type))).as_py():
                return False
    return True
