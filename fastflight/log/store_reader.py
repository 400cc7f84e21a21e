"""Reads a store while a writer may be using it, in this process or another. Takes no lock and writes nothing.

Each read begins with a new listing of the folder. It may return rows that the writer has written but not synced yet.
To read only durable rows, read through the writer's `Store`.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from pathlib import Path

import pyarrow as pa

from fastflight.errors import UnknownName, nearest
from fastflight.log.content import Codec, log_number
from fastflight.log.disk import Disk, LocalDisk
from fastflight.log.parts import extents, known_damage, load_parts, log_statistics
from fastflight.log.reading import LogReading, Snapshot, StorePart, retry_missing
from fastflight.log.stored import StoredRows, stored_rows
from fastflight.log.values import EVERYTHING, Damage, Extent, LogStatistics, Missing, NumberedRows, Range


class LogReader:
    """One log of a `StoreReader`."""

    def __init__(self, reader: StoreReader, name: str, codec: Codec) -> None:
        self.name = name
        self.schema: pa.Schema = codec.schema
        self._reader = reader
        self._codec = codec

    def read(self, wanted: Range = EVERYTHING) -> Generator[NumberedRows | Missing, None, None]:
        """As `Log.read`."""
        return LogReading(self._reader, log_number(self.name), self._codec, wanted).run()

    def statistics(self) -> LogStatistics:
        """As `Log.statistics`."""
        number = log_number(self.name)
        return retry_missing(lambda: log_statistics(self._reader.snapshot(number), number))

    def extents(self, wanted: Range = EVERYTHING) -> list[Extent]:
        """As `Log.extents`."""
        number = log_number(self.name)
        return retry_missing(lambda: extents(self._reader.snapshot(number), number, wanted))

    def stored(self, wanted: Range = EVERYTHING, limit: int | None = None) -> StoredRows:
        """As `Log.stored`."""
        number = log_number(self.name)
        return retry_missing(lambda: stored_rows(self._reader.snapshot(number), number, wanted, limit))


class StoreReader:
    """The logs of a folder, to read. It needs no `close`."""

    def __init__(self, folder: str | Path, *, disk: Disk | None = None) -> None:
        self._disk = disk if disk is not None else LocalDisk(folder)
        self._lock = threading.Lock()
        self._parts: list[StorePart] = []

    def names(self) -> list[str]:
        """Return the names of the logs in the folder, sorted."""
        return sorted({s.state.name for part in self._load() for s in list(part.index.logs.values()) if s.state.name})

    def log(self, name: str) -> LogReader:
        """Return an existing log. Raises `UnknownName` if there is none of that name."""
        number = log_number(name)
        for part in self._load():
            log_index = part.index.logs.get(number)
            if log_index is not None and log_index.state.name == name:
                return LogReader(self, name, Codec(pa.ipc.read_schema(pa.py_buffer(log_index.state.schema))))
        raise UnknownName("no such recording", where=name, hint=nearest(name, self.names()))

    def damage(self) -> list[Damage]:
        """Return the places that are known to be damaged."""
        return known_damage(self._load())

    def snapshot(self, number: int) -> Snapshot:
        """Return the present snapshot of a log."""
        parts = self._load()
        indexes = [part.index.logs[number] for part in parts if number in part.index.logs]
        first = max((max(index.state.first for index in indexes), indexes[0].begin)) if indexes else 0
        return Snapshot(parts, first, max((index.next for index in indexes), default=0))

    def _load(self) -> list[StorePart]:
        """Return the parts in the folder. Segments that were loaded before are not scanned from their beginning."""
        with self._lock:
            self._parts = retry_missing(lambda: load_parts(self._disk, writing=False, known=self._parts))
            return list(self._parts)
