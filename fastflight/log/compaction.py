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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastflight.errors import StorageError
from fastflight.log.bodies import decode, joined, one_batch, runs_of, to_parquet
from fastflight.log.database import BodyRow, Entry
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


@dataclass(slots=True)
class NewBody:
    """The rows of one log that replace others. `file` is empty if they stay in the tail."""

    log: int
    ordinal: int
    created: int
    data: bytes
    entries: list[Entry] = field(default_factory=list)
    is_file: bool = False


def compact(
    store: Store,
    on_batch: Callable[[], object] = lambda: None,
    *,
    file_bytes: int = FILE_BYTES,
    least: int = SORT_BODIES,
) -> dict[str, str]:
    """Compact the tail, and return the names of the new Parquet files, each with the name of its log.

    Other threads can append and read meanwhile. `on_batch` is called after each body that is read. It may sleep, to
    leave time to other work. If it raises, the exception ends the compaction, and what is not replaced yet stays.
    Commits are sorted if there are at least so many, and a log becomes a file if `file_bytes` of it are in the tail:
    `compact(store, file_bytes=0, least=1)` converts all rows to files.
    Raises `StorageError` if the disk fails, and `Stopped` if the store is closed.
    """
    with store.maintenance_lock:
        store.check()
        return _Compaction(store, on_batch, file_bytes, least).run()


class _Compaction:
    def __init__(self, store: Store, on_batch: Callable[[], object], file_bytes: int, least: int) -> None:
        self._store = store
        self._on_batch = on_batch
        self._file_bytes = file_bytes
        self._least = least
        # Bodies that are damaged.
        self._left: set[int] = set()

    def run(self) -> dict[str, str]:
        made: dict[str, str] = {}
        try:
            for bodies in self._commits():
                self._store.replace([body.id for body in bodies], self._sorted(bodies))
            for bodies, is_file in self._tails():
                new = self._joined(bodies, is_file=is_file)
                for file in self._store.replace([body.id for body in bodies], new):
                    made[file] = self._store.name_of(new[0].log)
        except OSError as error:
            raise failure(error, "compacting") from error
        return made

    def _tail(self) -> list[BodyRow]:
        bodies = self._store.content.database.bodies()
        return [body for body in bodies if body.file is None and body.id not in self._left]

    def _commits(self) -> Iterator[list[BodyRow]]:
        """Yield bodies with the rows of many logs that are to be sorted together, in order."""
        bodies = [body for body in self._tail() if body.log is None]
        if len(bodies) >= self._least or sum(body.bytes for body in bodies) >= SORT_BYTES:
            yield from _chunks(bodies, SORT_BYTES)

    def _tails(self) -> Iterator[tuple[list[BodyRow], bool]]:
        """Yield bodies of one log that are to be joined, in order, and whether to a file."""
        by_log: dict[int, list[BodyRow]] = {}
        for body in self._tail():
            if body.log is not None:
                by_log.setdefault(body.log, []).append(body)
        for bodies in by_log.values():
            is_file = sum(body.bytes for body in bodies) >= self._file_bytes
            if is_file or len(bodies) >= JOIN_BODIES:
                for chunk in _chunks(bodies, MAX_FILE_BYTES):
                    yield chunk, is_file

    def _sorted(self, bodies: list[BodyRow]) -> list[NewBody]:
        """Return the rows of `bodies` as one new body for each log. Takes damaged bodies out of the list `bodies`."""
        rows = self._rows(bodies)
        if rows is None:
            return []
        rows = rows.take(pc.sort_indices(rows.column(0)))
        logs = rows.column(0).to_numpy()
        starts = [0, *(np.flatnonzero(np.diff(logs)) + 1).tolist(), len(logs)]
        return [
            _new(bodies[-1], int(logs[start]), one_batch(pa.Table.from_batches([rows.slice(start, stop - start)])))
            for start, stop in zip(starts, starts[1:], strict=False)
        ]

    def _joined(self, bodies: list[BodyRow], *, is_file: bool) -> list[NewBody]:
        """Return the rows of `bodies`, all of one log, as one new body. Takes damaged ones out of the list `bodies`."""
        rows, log = self._rows(bodies), bodies[0].log if bodies else None
        if rows is None or log is None:
            return []
        return [_new(bodies[-1], log, rows, self._store.name_of(log) if is_file else "")]

    def _rows(self, bodies: list[BodyRow]) -> pa.RecordBatch | None:
        """Return the rows of `bodies` as one batch. Takes damaged and deleted ones out of the list `bodies`."""
        read: list[pa.RecordBatch] = []
        for body in list(bodies):
            self._store.check()
            self._on_batch()
            try:
                rows = self._store.content.body(body.id)
            except Gone:
                rows = None
            if rows is None:
                bodies.remove(body)
                self._left.add(body.id)
            else:
                read.append(rows)
        return joined(read) if read else None


def _new(newest: BodyRow, log: int, rows: pa.RecordBatch, name: str = "") -> NewBody:
    """Return a body with `rows` of a log in place of those up to `newest`: a file, if the log's `name` is given."""
    if name:
        data = to_parquet(name, rows)
        back = decode(data, crc32(data), log)
        if back is None or not back.equals(rows):
            raise StorageError("Parquet has changed the rows", where=name, hint="This is a defect: report it")
    else:
        data = rows.serialize().to_pybytes()
    return NewBody(log, newest.ordinal, newest.created, data, _entries(rows, len(data)), bool(name))


def _entries(rows: pa.RecordBatch, size: int) -> list[Entry]:
    """Return an entry for each run of rows without a hole. Their body is not known yet."""
    times = rows.column(2).view(pa.int64()).to_numpy()
    found = []
    for _, start, first, count in runs_of(rows):
        within = times[start : start + count]
        share = max(1, size * count // len(times))
        found.append(Entry(first, count, int(within.min()), int(within.max()), 0, start, share))
    return found


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
    yield chunk
