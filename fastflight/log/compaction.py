"""Compaction: sorts the tail by log, and writes what is worth a file as Parquet.

What all logs append in one commit is one body of the tail. When there are some of these, their rows are sorted into a
body for each log. When the tail of a log is worth a file, its rows become Parquet files of their own, which are
smaller, and readable by other tools. Reading a log returns the same rows before and after.

New files are written and synced, read back and compared with the rows. Then one transaction inserts the new bodies and
deletes the old ones. If anything fails before, nothing has changed, but for files that no body names: the next writer
that opens the folder removes them. Damaged bodies stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastflight.errors import StorageError
from fastflight.log.bodies import decode, joined, to_parquet
from fastflight.log.database import BodyRow
from fastflight.log.disk import failure
from fastflight.log.reading import Gone

if TYPE_CHECKING:
    from fastflight.log.store import Store

# Bodies of commits that are worth sorting.
SORT_BODIES = 32
# Rows that are sorted together: what is held in memory.
SORT_BYTES = 32 * 1024 * 1024
# Bodies of one log in the tail that are worth joining.
JOIN_BODIES = 32
# The tail of a log that is worth a file, and the most of it that becomes one file.
FILE_BYTES = 1024 * 1024
MAX_FILE_BYTES = 16 * 1024 * 1024
# Retention deletes whole bodies. So that it takes the oldest rows of all logs, and not all rows of one, what is sorted
# or written together is at most this part of the limit of size.
PART_OF_LIMIT = 16


@dataclass(frozen=True, slots=True)
class NewBody:
    """Rows of one log that replace others, and their bytes: those of a Parquet file if `is_file`."""

    log: int
    rows: pa.RecordBatch
    data: bytes
    is_file: bool


def compact(
    store: Store,
    on_batch: Callable[[], object] = lambda: None,
    *,
    file_bytes: int = FILE_BYTES,
    least: int = SORT_BODIES,
) -> dict[str, str]:
    """Compact the tail, and return the names of the new Parquet files, each with the name of its log.

    Other threads can append and read meanwhile. `on_batch` is called before each body that is read. It may sleep, to
    leave time to other work. If it raises, the exception ends the compaction, and what is not replaced yet stays.
    Commits are sorted if there are at least so many, and a log becomes a file if `file_bytes` of it are in the tail:
    `compact(store, file_bytes=0, least=1)` converts all rows to files.
    Raises `StorageError` if the disk fails, and `Stopped` if the store is closed.
    """
    made: dict[str, str] = {}
    limit = store.max_bytes
    most = SORT_BYTES if limit is None else min(SORT_BYTES, limit // PART_OF_LIMIT)
    with store.maintenance_lock:
        store.check()
        try:
            commits = _tail(store).get(None, [])
            if len(commits) >= least or _size(commits) >= most:
                for bodies in _chunks(commits, most):
                    _replace(store, bodies, on_batch)
            for log, bodies in _tail(store).items():
                is_file = _size(bodies) >= file_bytes
                if log is not None and (is_file or len(bodies) >= JOIN_BODIES):
                    for chunk in _chunks(bodies, min(MAX_FILE_BYTES, most)):
                        files = _replace(store, chunk, on_batch, store.name_of(log) if is_file else "")
                        made |= dict.fromkeys(files, store.name_of(log))
        except OSError as error:
            raise failure(error, "compacting") from error
    return made


def _tail(store: Store) -> dict[int | None, list[BodyRow]]:
    """Return the bodies of the tail by their log: None for those with the rows of many."""
    found: dict[int | None, list[BodyRow]] = {}
    for body in store.content.database.bodies():
        if body.file is None:
            found.setdefault(body.log, []).append(body)
    return found


def _size(bodies: Sequence[BodyRow]) -> int:
    return sum(body.bytes for body in bodies)


def _chunks(bodies: Sequence[BodyRow], most: int) -> Iterator[list[BodyRow]]:
    """Yield consecutive bodies of at most `most` bytes together."""
    chunk: list[BodyRow] = []
    size = 0
    for body in bodies:
        if chunk and size + body.bytes > most:
            yield chunk
            chunk, size = [], 0
        chunk.append(body)
        size += body.bytes
    if chunk:
        yield chunk


def _replace(store: Store, bodies: Sequence[BodyRow], on_batch: Callable[[], object], name: str = "") -> list[str]:
    """Replace bodies by one for each log in them: by files if this `name` of their log is given. Return these files."""
    intact: list[BodyRow] = []
    read: list[pa.RecordBatch] = []
    for body in bodies:
        store.check()
        on_batch()
        try:
            decoded = store.content.body(body.id)
        except Gone:
            continue
        if decoded is not None:
            intact.append(body)
            read.append(decoded.keyed)
    if not read:
        return []
    every = joined(read)
    every = every.take(pc.sort_indices(every.column(0)))  # which keeps the order of equal ones
    logs = every.column(0).to_numpy()
    ends = [0, *(np.flatnonzero(np.diff(logs)) + 1).tolist(), len(logs)]
    new = [_new(int(logs[start]), every.slice(start, stop - start), name) for start, stop in pairwise(ends)]
    return store.replace(intact, new)


def _new(log: int, rows: pa.RecordBatch, name: str) -> NewBody:
    if not name:
        return NewBody(log, rows, rows.serialize().to_pybytes(), is_file=False)
    data = to_parquet(name, rows)
    back = decode(data, crc32(data), log)
    if back is None or not back.keyed.equals(rows):
        raise StorageError("Parquet has changed the rows", where=name, hint="This is a defect: report it")
    return NewBody(log, rows, data, is_file=True)
