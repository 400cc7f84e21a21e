"""Reading a store beside its writer, from this process or another: no lock is taken, nothing is written.

Each read begins with a look at what the folder holds now. What the writer has written and not yet synced may be seen:
whoever must not see it reads in the writer's process.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from pathlib import Path

import pyarrow as pa

from fastflight.errors import UnknownName, nearest
from fastflight.log.batch_log import EVERYTHING, Damage, Extent, LogStatistics, Missing, NumberedRows, Range
from fastflight.log.content import Codec, stream_of
from fastflight.log.disk import Disk, LocalDisk
from fastflight.log.parts import damage_of, extents, kept, load_parts
from fastflight.log.reading import LogReading, Snapshot, StorePart, looked


class LogReader:
    """One log of a `StoreReader`."""

    def __init__(self, reader: StoreReader, name: str, codec: Codec) -> None:
        self.name = name
        self.schema: pa.Schema = codec.schema
        self._reader = reader
        self._codec = codec

    def read(self, wanted: Range = EVERYTHING) -> Generator[NumberedRows | Missing, None, None]:
        """As `BatchLog.read`."""
        return LogReading(self._reader, stream_of(self.name), self._codec, wanted).run()

    def statistics(self) -> LogStatistics:
        """As `BatchLog.statistics`."""
        number = stream_of(self.name)
        return looked(lambda: kept(self._reader.snapshot(number), number))

    def extents(self, wanted: Range = EVERYTHING) -> list[Extent]:
        """As `BatchLog.extents`."""
        number = stream_of(self.name)
        return looked(lambda: extents(self._reader.snapshot(number), number, wanted))


class StoreReader:
    """The logs of a folder, to read. There is nothing to close."""

    def __init__(self, folder: str | Path, *, disk: Disk | None = None) -> None:
        self._disk = disk if disk is not None else LocalDisk(folder)
        self._lock = threading.Lock()
        self._parts: list[StorePart] = []

    def names(self) -> list[str]:
        """The logs that there are now, sorted."""
        return sorted(
            {s.state.name for part in self._look() for s in list(part.index.streams.values()) if s.state.name}
        )

    def log(self, name: str) -> LogReader:
        """A log that is there; `UnknownName` where it is not."""
        number = stream_of(name)
        for part in self._look():
            stream = part.index.streams.get(number)
            if stream is not None and stream.state.name == name:
                return LogReader(self, name, Codec(pa.ipc.read_schema(pa.py_buffer(stream.state.schema))))
        raise UnknownName("no such recording", where=name, hint=nearest(name, self.names()))

    def damage(self) -> list[Damage]:
        """Places that cannot be read, as far as is known."""
        return damage_of(self._look())

    def snapshot(self, number: int) -> Snapshot:
        """How a log stands now."""
        parts = self._look()
        shares = [part.index.streams[number] for part in parts if number in part.index.streams]
        first = max((max(share.state.first for share in shares), shares[0].begin)) if shares else 0
        return Snapshot(parts, first, max((share.next for share in shares), default=0))

    def _look(self) -> list[StorePart]:
        with self._lock:
            self._parts = looked(lambda: load_parts(self._disk, writing=False, known=self._parts))
            return list(self._parts)
