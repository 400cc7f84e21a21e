"""Reads logs by name. `StoreReader` does so while a writer may be using the folder, in this process or another.

It takes no lock and writes no row. It sees a row when it is durable.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from fastflight.errors import UnknownName, nearest
from fastflight.gap import Gap
from fastflight.log.bodies import BodyCodec
from fastflight.log.content import Codec
from fastflight.log.database import Database, Entry, read_schema
from fastflight.log.disk import DATABASE, LocalDisk
from fastflight.log.reading import Bounds, Content, Gone, LogReading, Source, mapped
from fastflight.log.stored import StoredRows, items_of, stored_rows
from fastflight.log.values import EVERYTHING, Extent, LogStatistics, NumberedRows, Range


class Holding(Source, Protocol):
    """A source that keeps files while they are read."""

    def hold(self, names: list[str]) -> contextlib.AbstractContextManager[None]:
        """Delete none of these files while the context lasts."""


class LogReader:
    """One log to read. Any thread may use it."""

    def __init__(self, source: Holding, number: int, name: str, codec: BodyCodec) -> None:
        self.id = number
        self.name = name
        self.codec = codec
        self._source = source

    @property
    def schema(self) -> pa.Schema:
        """The schema of its batches."""
        return self.codec.schema

    def read(self, wanted: Range = EVERYTHING) -> Generator[NumberedRows | Gap, None, None]:
        """Yield the durable rows in the order of their numbers, up to the end of the log when reading began."""
        return LogReading(self._source, self.id, self.name, self.codec, wanted).run()

    def statistics(self) -> LogStatistics:
        """Return the present statistics of the log."""
        return mapped(lambda: self._database.statistics(self.id, *self._bounds(), self._source.content.damaged))

    def extents(self, wanted: Range = EVERYTHING) -> list[Extent]:
        """Return where the rows of a range are stored now, in the order of their numbers."""
        return mapped(lambda: self._database.extents(self.id, *self._bounds(), wanted))

    def end(self) -> tuple[int | None, str]:
        """Return the time (us UTC) to which the log is known to be complete, and why it did not go on."""
        return mapped(lambda: self._database.end(self.id))

    def stored(self, wanted: Range = EVERYTHING, limit: int | None = None) -> StoredRows:
        """Find the Parquet files with the oldest rows of a range, at most `limit`. Close what this returns."""
        return mapped(lambda: self._stored(wanted, limit))

    def _stored(self, wanted: Range, limit: int | None) -> StoredRows:
        content = self._source.content
        names = {body: name for body, name in self._database.files(self.id).items() if name}
        held = contextlib.ExitStack()
        held.enter_context(self._source.hold(list(names.values())))
        try:
            bounds = self._bounds()
            stop = bounds.next if wanted.until_seq is None else min(bounds.next, wanted.until_seq + 1)
            items = items_of(wanted, bounds.first)
            paths = {body: content.database.disk.folder / name for body, name in names.items()}
            entries = self._entries(items.cursor, stop)
            found = stored_rows(entries, paths, self._is_intact, items, stop, limit)
        except BaseException:
            held.close()
            raise
        found.release = held.close
        return found

    def _entries(self, low: int, stop: int) -> Iterator[Entry]:
        told = -1
        while page := [
            each for each in self._database.entries(self.id, low, stop)[1] if each.rows or each.first > told
        ]:
            yield from page
            low, told = max(each.end for each in page), max(each.first for each in page)

    def _is_intact(self, body: int) -> bool:
        try:
            return self._source.content.is_intact(body, self.codec)
        except Gone:
            return False

    @property
    def _database(self) -> Database:
        return self._source.content.database

    def _bounds(self) -> Bounds:
        return self._source.bounds(self.id, self.name)


class StoreReader:
    """Reads the logs of a folder. Its connections to the database are closed by `close`, or when it is deleted."""

    def __init__(self, folder: str | Path, *, disk: LocalDisk | None = None) -> None:
        self.content = Content(Database(disk if disk is not None else LocalDisk(folder)))

    def names(self) -> list[str]:
        """Return the names of the logs in the folder, sorted. Raises `StorageError` if there is no folder."""
        database = self.content.database
        if DATABASE not in mapped(database.disk.names):
            return []
        return [row.name for row in mapped(database.logs)]

    def log(self, name: str) -> LogReader:
        """Return an existing log. Raises `UnknownName` if there is none of that name."""
        names = self.names()
        if name not in names:
            raise UnknownName("no such recording", where=name, hint=nearest(name, names))
        (row,) = mapped(lambda: self.content.database.logs(name))
        return LogReader(self, row.id, name, BodyCodec(Codec(read_schema(row.schema))))

    def bounds(self, log: int, name: str) -> Bounds:
        """Return the present bounds of a log."""
        for row in self.content.database.logs(name):
            return Bounds(row.first, row.next)
        return Bounds(0, 0)

    def hold(self, names: list[str]) -> contextlib.AbstractContextManager[None]:
        """Nothing: a reader cannot keep the files of a writer."""
        return contextlib.nullcontext()

    def close(self) -> None:
        """Close its connections to the database."""
        self.content.database.close()
