"""Reads the logs of a folder: the rows of each in order, and the numbers that are missing.

Bodies may be replaced or removed during a read, by a compaction or by retention. Reading then asks again, and continues
at the same number. No statement is open while rows are yielded.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from collections import OrderedDict
from collections.abc import Generator, Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from fastflight.errors import UnknownName, nearest
from fastflight.gap import Gap, Why, microseconds, moment
from fastflight.log.bodies import DecodedBody, FileBody, decode, joined
from fastflight.log.database import PAGE, Database, LogRow
from fastflight.log.disk import DATABASE, LocalDisk, failure
from fastflight.log.values import (
    BEGINNING,
    END_OF_TIME,
    EVERYTHING,
    Entry,
    Extent,
    LogStatistics,
    NumberedRows,
    Range,
    StoredRows,
)

# Decoded bodies of the tail that are kept, because what was appended last is read for one log after another.
CACHED_BYTES = 16 * 1024 * 1024
# Rows of several entries that are yielded as one batch.
JOINED_BYTES = 1024 * 1024

_STATISTICS = """
select sum(min(rows, first + rows - :first)) filter (where why = ''), sum(bytes) filter (where why = ''),
    min(first_time) filter (where why = ''), max(last_time) filter (where why = ''),
    sum(min(rows, first + rows - :first)) filter (where why = 'unused'),
    count(*) filter (where why not in ('', 'unused'))
from entries where log = :log and first < :next and first + rows + (rows = 0) > :first
"""
_NEWEST_GAP = """
select first, rows, first_time, last_time, body, at, bytes, why from entries
where log = :log and first < :next and first + rows + (rows = 0) > :first and why not in ('', 'unused')
order by first desc, rows desc limit 1
"""
_EXTENTS = """
select min(max(first, :low)), max(min(first + rows, :high)) - 1, sum(min(first + rows, :high) - max(first, :low)),
    sum(entries.bytes), min(first_time)
from entries left join bodies on bodies.id = entries.body and file is not null
where entries.log = :log and why = '' and first < :high and first + rows > :low
    and first_time < :stop and last_time >= :start
group by bodies.id order by 1
"""
# To which time a log is complete, and why it does not go on.
_END = """
select max(coalesce(complete_to, :low), coalesce(
    (select last_time from entries where log = id and why = '' order by first desc limit 1), :low)), ended
from logs where id = :log
"""


class Gone(Exception):
    """A body has been replaced or removed since its entry was read."""


class Content:
    """The bodies of a folder, decoded and verified. Any thread may use it. `damaged` names the places that readings
    of logs have found damaged, by the log and the body.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.damaged: dict[tuple[int, int], str] = {}
        self._cached: OrderedDict[int, DecodedBody] = OrderedDict()
        self._cached_bytes = 0
        self._caching = threading.Lock()
        self._intact: set[int] = set()

    def body(self, number: int) -> DecodedBody | FileBody | None:
        """Return a body; None if it is damaged. Raises `Gone`."""
        if (cached := self._cached.get(number)) is not None:
            return cached
        stored = self.database.body(number)
        if stored is None:
            raise Gone
        try:
            data = self.database.disk.read(stored.file) if stored.file is not None else stored.data
        except FileNotFoundError:
            raise Gone from None
        except OSError as error:
            if error.errno != errno.EIO:
                raise failure(error, "reading the recordings") from error
            data = None  # a bad sector
        body = decode(data or b"", stored.crc, stored.log if stored.file is not None else None)
        if isinstance(body, DecodedBody) and body.keyed.nbytes <= CACHED_BYTES // 4:
            self._keep(number, body)
        return body

    def is_intact(self, number: int) -> bool:
        """Whether a Parquet file is there and has the bytes that were written. Looks once at each file."""
        with contextlib.suppress(Gone):
            if number not in self._intact and self.body(number) is not None:
                self._intact.add(number)
        return number in self._intact

    def place(self, number: int) -> str:
        """Name where a body is."""
        stored = self.database.body(number)
        return "" if stored is None else stored.place(number)

    def _keep(self, number: int, body: DecodedBody) -> None:
        with self._caching:
            if number in self._cached:
                return
            self._cached[number] = body
            self._cached_bytes += body.keyed.nbytes
            while self._cached_bytes > CACHED_BYTES:
                self._cached_bytes -= self._cached.popitem(last=False)[1].keyed.nbytes


class LogReader:
    """One log to read. Any thread may use it."""

    def __init__(self, content: Content, number: int, name: str) -> None:
        self.id = number
        self.name = name
        self._content = content

    def read(self, wanted: Range = EVERYTHING) -> Generator[NumberedRows | Gap, None, None]:
        """Yield the durable rows in the order of their numbers, up to the end of the log when reading began."""
        start = BEGINNING if wanted.from_time is None else wanted.from_time
        stop = END_OF_TIME if wanted.until_time is None else wanted.until_time
        items = self._items(wanted, start, stop)
        if (start, stop) != (BEGINNING, END_OF_TIME):
            items = _in_time(items, start, stop)
        yield from _joined(items)

    def statistics(self) -> LogStatistics:
        """Return the present statistics of the log. Damaged rows are counted as if they were whole."""
        first, following = self._bounds()
        asked = {"log": self.id, "first": first, "next": following}
        ((rows, size, first_time, last_time, unused, gaps),) = self._content.database.rows(_STATISTICS, asked)
        newest = [gap_of(Entry(*row)) for row in self._content.database.rows(_NEWEST_GAP, asked)] if gaps else []
        cleared = [Gap(0, first - 1, Why.CLEARED)] if first else []
        damage = self.damage()
        return LogStatistics(
            rows or 0,
            size or 0,
            first,
            following,
            first_time,
            last_time,
            following - first - (rows or 0) - (unused or 0),
            damage,
            gaps + len(damage) + len(cleared),
            next(iter(newest + cleared), None),
        )

    def damage(self) -> tuple[str, ...]:
        """Return the damaged places with rows of this log that readings have found."""
        return tuple(place for (log, _), place in list(self._content.damaged.items()) if log == self.id)

    def extents(self, wanted: Range = EVERYTHING) -> list[Extent]:
        """Return where the rows of a range are now, in order: one extent for each Parquet file, one for the others."""
        first, following = self._bounds()
        asked = {
            "log": self.id,
            "low": max(first, wanted.from_seq or 0),
            "high": following if wanted.until_seq is None else min(following, wanted.until_seq + 1),
            "start": BEGINNING if wanted.from_time is None else wanted.from_time,
            "stop": END_OF_TIME if wanted.until_time is None else wanted.until_time,
        }
        return [Extent(*row) for row in self._content.database.rows(_EXTENTS, asked)]

    def end(self) -> tuple[int | None, str]:
        """Return the time (us UTC) to which the log is known to be complete, and why it did not go on.

        The time is None if nothing of the log is stored.
        """
        for time, why in self._content.database.rows(_END, {"log": self.id, "low": BEGINNING}):
            if time != BEGINNING:
                return time, why
        return None, ""

    def stored(self) -> StoredRows:
        """Find the Parquet files with the oldest rows. Close what this returns."""
        content = self._content
        names = self._files()
        with contextlib.ExitStack() as held:
            held.enter_context(self._hold(list(names.values())))
            # Read after that: what was deleted before is not damaged.
            first, following = self._bounds()
            found = StoredRows(first, first)
            gaps = lost = 0
            spans: dict[str, tuple[int, int]] = {}
            for entry in self._entries(first, following):
                if not entry.why and entry.body not in names:
                    break
                if entry.why == Why.UNUSED:
                    continue
                if entry.why or not content.is_intact(entry.body):
                    gaps, lost = gaps + 1, lost + entry.rows
                else:
                    name = names[entry.body]
                    spans[name] = spans.get(name, (entry.first,))[0], entry.end - 1
                if not entry.why:
                    found.end, found.gaps, found.lost = entry.end, gaps, lost
            found.files = [content.database.disk.folder / name for name in spans]
            found.spans = list(spans.values())
            found.release = held.pop_all().close
            return found

    def _items(self, wanted: Range, start: int, stop: int) -> Iterator[NumberedRows | Gap | None]:
        """Yield the rows of a range of numbers, and what is missing; None for rows outside of the range of times."""
        low, (_, end) = max(wanted.from_seq or 0, 0), self._bounds()
        if wanted.until_seq is not None:
            end = min(end, wanted.until_seq + 1)
        # Before the first row, deleted numbers are reported only if they were asked for.
        begun = wanted.from_seq is not None
        # The number before which a gap without numbers was reported, and the number at which a body was gone.
        reported = gone_at = -1
        while low < end:
            for entry in self._entries(low, end, reported):
                low = entry.first
                if entry.why:
                    if begun or entry.why != Why.CLEARED:
                        yield gap_of(entry)
                    reported = reported if entry.rows else low
                elif not entry.overlaps(start, stop):
                    yield None
                else:
                    try:
                        body = self._content.body(entry.body)
                    except Gone:
                        if gone_at != low:
                            gone_at = low
                            break  # ask again where the rows are now
                        body = None
                    if body is None:
                        yield self._damaged(entry)
                    else:
                        yield from self._decoded(body, entry, start, stop)
                low, begun = entry.end, True

    def _decoded(
        self, body: DecodedBody | FileBody, entry: Entry, start: int, stop: int
    ) -> Iterator[NumberedRows | Gap | None]:
        """Yield the rows of an entry, decoding only the parts that may have rows in the range of times."""
        for part in body.parts(entry):
            if not part.overlaps(start, stop):
                yield None
            else:
                rows = body.rows(self.id, part.at, part.first, part.rows)
                yield self._damaged(part) if rows is None else rows

    def _entries(self, low: int, end: int, reported: int = -1) -> Iterator[Entry]:
        """Yield what is stored or missing of the numbers from `low` on and below `end`, in order and without a hole.

        Numbers of which nothing is known are damaged. A gap without numbers before the number `reported` is left out.
        """
        while low < end:
            first, page = self._content.database.entries(self.id, low, end)
            if low < (first := min(first, end)):
                yield Entry(low, first - low, why=Why.CLEARED)
                low = first
                continue
            before = low, reported
            for entry in page:
                # Others are before `low`, or of damaged tables.
                if entry.end > low or (not entry.rows and entry.end == low != reported):
                    if entry.first > low:
                        yield Entry(low, entry.first - low, why=Why.DAMAGED)
                    found = entry.within(low, end)
                    yield found
                    low, reported = found.end, reported if found.rows else found.first
            if (low, reported) == before:
                yield Entry(low, end - low, why=Why.DAMAGED)
                return

    def _damaged(self, entry: Entry) -> Gap:
        place = self._content.damaged[self.id, entry.body] = self._content.place(entry.body)
        return gap_of(entry._replace(why=Why.DAMAGED, bytes=None), place)

    def _files(self) -> dict[int, str]:
        """Return the names of its files, by the numbers of their bodies."""
        return {body.id: body.file for body in self._content.database.bodies(self.id) if body.file is not None}

    def _bounds(self) -> tuple[int, int]:
        """Return the first number that was not deleted, and the number after the last durable row."""
        for row in self._content.database.logs(self.name):
            return row.first, row.next
        return 0, 0

    def _hold(self, names: list[str]) -> contextlib.AbstractContextManager[None]:
        """Delete none of these files while the context lasts. A reader cannot keep the files of a writer."""
        return contextlib.nullcontext()


class StoreReader:
    """Reads the logs of a folder while a writer may be using it, in this process or another.

    It takes no lock, writes no row, and sees a row when it is durable. Its connections to the database are closed by
    `close`, or when it is deleted.
    """

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


def gap_of(entry: Entry, detail: str = "") -> Gap:
    """Return what is missing by an entry."""
    times = moment(entry.first_time), moment(entry.last_time)
    return Gap(entry.first, entry.end - 1, entry.why, detail, *times, entry.bytes)


def _in_time(items: Iterable[NumberedRows | Gap | None], start: int, stop: int) -> Iterator[NumberedRows | Gap]:
    """Yield the rows with `start` <= time < `stop`, and what is missing between these times or next to such rows."""
    # Whether the last rows are in the range, and the gaps since rows that are not.
    inside, gaps = False, list[Gap]()
    for item in items:
        if item is None:
            inside = False
            gaps.clear()
        elif isinstance(item, Gap):
            begin, end = microseconds(item.from_time), microseconds(item.to_time)
            if item.why == Why.DAMAGED:
                wanted = inside = True  # rows of it may have been in the range
            elif begin is None or end is None:
                wanted = inside
            else:
                wanted = begin < stop and end >= start
            if wanted:
                yield from gaps
                gaps.clear()
                yield item
            elif begin is None or end is None:
                gaps.append(item)
        else:
            times = item.batch.column(0).view(pa.int64()).to_numpy()
            within = (times >= start) & (times < stop)
            if within[0]:
                yield from gaps
            gaps.clear()
            inside = bool(within[-1])
            for at, until in pairwise([0, *(np.flatnonzero(np.diff(within)) + 1).tolist(), len(within)]):
                if within[at]:
                    yield NumberedRows(item.first + at, item.batch.slice(at, until - at), item.bytes)


def _joined(items: Iterable[NumberedRows | Gap | None]) -> Iterator[NumberedRows | Gap]:
    """Join rows that follow each other: boards that print little have one in each entry."""
    waiting: list[NumberedRows] = []
    size = 0
    for item in items:
        if waiting and (
            not isinstance(item, NumberedRows)
            or item.first != waiting[-1].last + 1
            or size + item.bytes > JOINED_BYTES
            or len(waiting) >= PAGE
        ):
            yield NumberedRows(waiting[0].first, joined([each.batch for each in waiting]), size)
            waiting, size = [], 0
        if isinstance(item, NumberedRows):
            waiting.append(item)
            size += item.bytes
        elif item is not None:
            yield item
    if waiting:
        yield NumberedRows(waiting[0].first, joined([each.batch for each in waiting]), size)
