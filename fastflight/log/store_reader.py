"""Reads logs by name. `StoreReader` does so while a writer may be using the folder, in this process or another.

It takes no lock and writes no row. It sees a row when it is durable.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from pathlib import Path

from fastflight.errors import UnknownName, nearest
from fastflight.gap import Gap, Why
from fastflight.log.database import Database, Entry, LogRow
from fastflight.log.disk import DATABASE, LocalDisk, failure
from fastflight.log.reading import Bounds, Content, LogReading
from fastflight.log.values import EVERYTHING, Extent, LogStatistics, NumberedRows, Range, StoredRows


class LogReader:
    """One log to read. Any thread may use it."""

    def __init__(self, content: Content, number: int, name: str) -> None:
        self.id = number
        self.name = name
        self._content = content

    def read(self, wanted: Range = EVERYTHING) -> Generator[NumberedRows | Gap, None, None]:
        """Yield the durable rows in the order of their numbers, up to the end of the log when reading began."""
        return LogReading(self._content, self.id, self._bounds, wanted).run()

    def statistics(self) -> LogStatistics:
        """Return the present statistics of the log."""
        return self._content.database.statistics(self.id, *self._bounds(), self._content.damaged)

    def extents(self, wanted: Range = EVERYTHING) -> list[Extent]:
        """Return where the rows of a range are stored now, in the order of their numbers."""
        return self._content.database.extents(self.id, *self._bounds(), wanted)

    def end(self) -> tuple[int | None, str]:
        """Return the time (us UTC) to which the log is known to be complete, and why it did not go on."""
        return self._content.database.end(self.id)

    def stored(self) -> StoredRows:
        """Find the Parquet files with the oldest rows. Close what this returns."""
        content = self._content
        names = content.database.files(self.id)
        with contextlib.ExitStack() as held:
            held.enter_context(self._hold(list(names.values())))
            # Read after that: what was deleted before is not damaged.
            bounds = self._bounds()
            found = StoredRows(bounds.first, bounds.first)
            spans: dict[str, tuple[int, int]] = {}
            for entry in self._entries(bounds):
                if not entry.why and entry.body not in names:
                    break
                first, found.end = found.end, max(found.end, entry.end)
                missing = [entry.first - first] if entry.first > first else []  # damaged
                if entry.why or not content.is_intact(entry.body):
                    missing += [entry.end - max(first, entry.first)] if entry.why != Why.UNUSED else []
                else:
                    name = names[entry.body]
                    spans[name] = spans.get(name, (max(first, entry.first),))[0], entry.end - 1
                found.gaps += len(missing)
                found.lost += sum(missing)
            found.files = [content.database.disk.folder / name for name in spans]
            found.spans = list(spans.values())
            found.release = held.pop_all().close
            return found

    def _entries(self, bounds: Bounds) -> Iterator[Entry]:
        low, told = bounds.first, -1
        while page := [
            each
            for each in self._content.database.entries(self.id, low, bounds.next)[1]
            if each.rows or each.first > told
        ]:
            yield from page
            low, told = max(each.end for each in page), max(each.first for each in page)

    def _bounds(self) -> Bounds:
        """Return the present bounds."""
        for row in self._content.database.logs(self.name):
            return Bounds(row.first, row.next)
        return Bounds(0, 0)

    def _hold(self, names: list[str]) -> contextlib.AbstractContextManager[None]:
        """Delete none of these files while the context lasts. A reader cannot keep the files of a writer."""
        return contextlib.nullcontext()


class StoreReader:
    """Reads the logs of a folder. Its connections to the database are closed by `close`, or when it is deleted."""

    def __init__(self, folder: str | Path, *, disk: LocalDisk | None = None) -> None:
        self.content = Content(Database(disk if disk is not None else LocalDisk(folder)))

    def names(self) -> list[str]:
        """Return the names of the logs in the folder, sorted. Raises `StorageError` if there is no folder."""
        return [row.name for row in self._logs()]

    def log(self, name: str) -> LogReader:
        """Return an existing log. Raises `UnknownName` if there is none of that name."""
        names = {row.name: row.id for row in self._logs()}
        if name not in names:
            raise UnknownName("no such recording", where=name, hint=nearest(name, names))
        return LogReader(self.content, names[name], name)

    def _logs(self) -> list[LogRow]:
        database = self.content.database
        try:
            return database.logs() if DATABASE in database.disk.names() else []
        except OSError as error:
            raise failure(error, "reading the recordings") from error

    def close(self) -> None:
        """Close its connections to the database."""
        self.content.database.close()
