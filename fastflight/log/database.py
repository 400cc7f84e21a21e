"""The tables of a folder of recordings, and what is asked of them.

    logs      a log: its name, the first number that was not deleted, and a lower limit of the next one
    bodies    rows: an Arrow record batch in `data`, or a Parquet file; the crc32 of its bytes
    batches   a run of rows of one log without a hole, and where they are in a body
    gaps      what a log lacks: the numbers without rows (none if `last` is before `first`), why, the times, and the
              bytes; folders that were made before get that column when they are next written

A body has columns for the log and the number of each row, so a reader finds out if a batch names the wrong place. `log`
of a body is null if it has the rows of many logs: what all of them appended in one commit. `ordinal` is the order in
which bodies were appended; one that replaces others has the last of theirs. `seal` of a batch is a checksum of its row.
`schema` is not used: folders that were made before have numbers there, and a table of schemas.

A damaged page of the table `bodies` costs the rows of the bodies in it. So bodies are found in the indexes, which have
their numbers and ordinals.

Reading raises `StorageError` if the disk or the database fails. Any thread may use a `Database`.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import struct
import threading
from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Any, NamedTuple
from zlib import crc32

from fastflight.gap import Gap, Why, moment
from fastflight.log.disk import DATABASE, PROBLEMS, LocalDisk, failure, is_damage
from fastflight.log.values import BEGINNING, END_OF_TIME, Extent, LogStatistics, Range

# Another number means another layout of the tables.
VERSION = 2
TABLES = """
create table logs (
    id integer primary key, name text not null unique, first integer not null, next integer not null,
    complete_to integer, ended text not null default 'server down', schema integer not null
);
create table bodies (
    id integer primary key autoincrement, log integer, ordinal integer not null, created integer not null,
    crc integer not null, bytes integer not null, file text, data blob, schema integer not null
);
create index bodies_by_ordinal on bodies (ordinal);
create index bodies_by_log on bodies (log) where log is not null;
create table batches (
    log integer not null, first integer not null, rows integer not null, first_time integer not null,
    last_time integer not null, body integer not null, at integer not null, bytes integer not null,
    seal integer not null
);
create index batches_by_log on batches (log, first);
create table gaps (
    log integer not null, first integer not null, last integer not null, why text not null, from_time integer,
    to_time integer, bytes integer
);
create index gaps_by_log on gaps (log, first);
"""
# SQLite moves its log of changes into the tables when it has so many pages of 4 KiB.
WAL_PAGES = 512
# The checksum of a body that is lost: no bytes have it.
NO_CRC = -1
# Entries that a reader asks for at once.
PAGE = 512

_BATCHES = """
select first, rows, first_time, last_time, body, at, bytes, seal from batches where log = :log and first < :high
    and first >= coalesce((select max(first) from batches where log = :log and first <= :low), :low)
order by 1, 2 limit :limit
"""
_GAPS_IN = """
select * from gaps where log = :log and first < :high
    and first >= coalesce((select max(first) from gaps where log = :log and first <= :low), :low)
order by first, last limit :limit
"""
_STATISTICS = """
select coalesce(sum(min(rows, first + rows - :first)), 0), coalesce(sum(bytes), 0), min(first_time), max(last_time),
    (select coalesce(sum(last + 1 - max(first, :first)), 0) from gaps
        where log = :log and last >= :first and first < :next and why = 'unused')
from batches where log = :log and first + rows > :first and first < :next
"""
_EXTENTS = """
select min(max(first, :low)), max(min(first + rows, :high)) - 1, sum(min(first + rows, :high) - max(first, :low)),
    sum(bytes), min(first_time)
from batches where log = :log and first < :high and first + rows > :low and first_time < :stop and last_time >= :start
group by case when body in (select value from json_each(:files)) then body else 0 end order by 1
"""
# The newest gap, and the number of all.
_NEWEST_GAP = """
select count(*) over (), * from gaps
where log = :log and last >= :first - 1 and first < :next and why <> 'unused' order by first desc, last desc
limit 1
"""
_LOGS = """
select id, name, first, max(next,
    coalesce((select first + rows from batches where log = logs.id order by first desc limit 1), 0),
    coalesce((select last + 1 from gaps where log = logs.id order by first desc limit 1), 0))
from logs
"""
_POSITIONS = """
select ordinal, id from bodies indexed by bodies_by_ordinal where (ordinal, id) > (?, ?) order by ordinal, id limit ?
"""
_BODY_ROW = "select id, log, ordinal, created, bytes, file from bodies where id = ?"
_BODIES = "select id, log, ordinal, created, bytes, file from bodies where ? is null order by ordinal, id"
_BODIES_OF = "select id, log, ordinal, created, bytes, file from bodies where log = ?"
_NUMBERS = "select id from bodies indexed by bodies_by_ordinal where ? is null order by ordinal, id"
_NUMBERS_OF = "select id from bodies indexed by bodies_by_log where log = ?"
_BODY_WITH = "select body from batches where log = ? and first + rows > ? order by first limit 1"
_ENDS = "select log, max(first + rows) from batches where body = ? group by log"
_GAPS = """
select gaps.* from json_each(?) as wanted join gaps
on gaps.log = json_extract(wanted.value, '$[0]')
    and first between json_extract(wanted.value, '$[1]') and json_extract(wanted.value, '$[2]') order by 1, 2, 3
"""
# To which time a log is complete, and why it does not go on.
_END = """
select max(coalesce(complete_to, :low),
    coalesce((select last_time from batches where log = logs.id order by first desc limit 1), :low)), ended
from logs where id = :log
"""
_SEAL = struct.Struct("<8q")


class Entry(NamedTuple):
    """Numbers of a log that have rows, or what is missing and `why`. `at` is the first row in the body.

    The times and the bytes of what is missing are None if they are not known.
    """

    first: int
    rows: int
    first_time: int
    last_time: int
    body: int = 0
    at: int = 0
    bytes: int | None = None
    seal: int = 0
    why: str = ""

    @property
    def end(self) -> int:
        """The number after its last row."""
        return self.first + self.rows


class LogRow(NamedTuple):
    """A log: its number in the tables, the first number that was not deleted, and the next one."""

    id: int
    name: str
    first: int
    next: int


class BodyPosition(NamedTuple):
    """The place of a body in the order in which rows were appended."""

    ordinal: int
    id: int


BEFORE_ALL = BodyPosition(0, 0)


class BodyRow(NamedTuple):
    """What the tables say of a body. `log` is None if it has the rows of many logs, `file` if it is in the tail."""

    id: int
    log: int | None
    ordinal: int
    created: int
    bytes: int
    file: str | None


class Body(NamedTuple):
    """A body as it is stored: its log, the crc32 of its bytes, and either the name of a file or the bytes."""

    log: int | None
    crc: int
    file: str | None
    data: bytes | None

    def place(self, number: int) -> str:
        """Name where it is."""
        return self.file or f"{DATABASE}, body {number}"


def seal(log: int, entry: Entry) -> int:
    """Return the checksum of an entry with rows."""
    return crc32(_SEAL.pack(log, *entry[:7]))


class Database:
    """The database of a folder. It is opened when it is first asked."""

    def __init__(self, disk: LocalDisk) -> None:
        self.disk = disk
        self._free: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._closed = False

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection to read from. A statement ends with its last row: do not stop before it."""
        with self._lock:
            connection = self._free.pop() if self._free else None
        try:
            connection = connection or self.disk.connect()
            yield connection
        except BaseException as error:
            if connection is not None:
                connection.close()
            if isinstance(error, PROBLEMS):
                raise failure(error, "reading the recordings") from error
            raise
        with self._lock:
            if not self._closed:
                self._free.append(connection)
                return
        connection.close()

    def __del__(self) -> None:
        # A `StoreReader` need not be closed, and from 3.13 on Python warns of connections that are still open.
        self.close()

    def close(self) -> None:
        """Close the connections. Those that are lent are closed when they come back."""
        with self._lock:
            self._closed = True
            free, self._free = self._free, []
        for connection in free:
            connection.close()

    def logs(self, name: str | None = None) -> list[LogRow]:
        """Return all logs, or those of this name: one or none."""
        with self.reading() as connection:
            found = connection.execute(_LOGS + " where :name is null or name = :name order by name", {"name": name})
            return [LogRow(*row) for row in found.fetchall()]

    def entries(self, log: int, low: int, high: int) -> tuple[int, list[Entry]]:
        """Return the first number of a log that was not deleted, and entries at one moment.

        They are the first ones with numbers from `low` on and below `high`, in order. A batch whose seal is broken is
        left out: its numbers are explained by nothing, so they are damaged.
        """
        with self.reading() as connection:
            connection.execute("begin")
            row = connection.execute("select first from logs where id = ?", (log,)).fetchone()
            asked = {"log": log, "low": low, "high": high, "limit": PAGE}
            entries = [Entry(*each) for each in connection.execute(_BATCHES, asked).fetchall()]
            entries += [_gap_entry(*each) for each in connection.execute(_GAPS_IN, asked).fetchall()]
            connection.execute("commit")
        entries = sorted(entries, key=itemgetter(0, 1))[:PAGE]
        found = [
            each for each in entries if each.end >= low + bool(each.rows) and (each.why or each.seal == seal(log, each))
        ]
        return row[0] if row is not None else 0, found

    def body(self, number: int) -> Body | None:
        """Return a body; None if there is none of that number any more. One in a damaged page has no content."""
        with self.reading() as connection:
            found = _unless_damaged(connection, "select log, crc, file, data from bodies where id = ?", number)
        if found is None:
            return Body(None, NO_CRC, None, None)
        return Body(*found[0]) if found else None

    def bodies(self, log: int | None = None) -> list[BodyRow]:
        """Return all bodies in order, or only those of one log. Leaves out bodies in a damaged page."""
        with self.reading() as connection:
            every = _BODIES if log is None else _BODIES_OF
            found = _unless_damaged(connection, every, log)
            if found is None:
                numbers = connection.execute(_NUMBERS if log is None else _NUMBERS_OF, (log,)).fetchall()
                rows = [_unless_damaged(connection, _BODY_ROW, number) for (number,) in numbers]
                found = [each for some in rows for each in some or ()]
        return [BodyRow(*row) for row in found]

    def positions(self, after: BodyPosition = BEFORE_ALL, limit: int = PAGE) -> list[BodyPosition]:
        """Return the positions of the next bodies after one, also of bodies in a damaged page."""
        with self.reading() as connection:
            return [BodyPosition(*row) for row in connection.execute(_POSITIONS, (*after, limit)).fetchall()]

    def position_before(self, ends: Iterable[tuple[int, int]]) -> BodyPosition:
        """Return the position before the first rows of any log, given by number, from a number of its own on."""
        with self.reading() as connection:
            connection.execute("begin")
            places = connection.execute(_POSITIONS, (*BEFORE_ALL, -1)).fetchall()
            bodies = {body for end in ends for (body,) in connection.execute(_BODY_WITH, end).fetchall()}
            connection.execute("commit")
        before = [BodyPosition(ordinal, number - 1) for ordinal, number in places if number in bodies]
        return min([*before, *(BodyPosition(*place) for place in places[-1:])], default=BEFORE_ALL)

    def ends(self, body: int) -> dict[int, int]:
        """Return the logs with rows in a body, and the number of each after its last one there."""
        with self.reading() as connection:
            return dict(connection.execute(_ENDS, (body,)).fetchall())

    def gaps(self, wanted: Iterable[tuple[int, int, int]]) -> list[tuple[int, Gap]]:
        """Return the gaps of logs, given by number, that begin in a range of numbers, each with its log, in order."""
        with self.reading() as connection:
            found = connection.execute(_GAPS, (json.dumps(list(wanted)),)).fetchall()
        return [(row[0], _gap(*row)) for row in found]

    def files(self, log: int) -> dict[int, str]:
        """Return the names of the files of a log, by the numbers of their bodies."""
        return {body.id: body.file for body in self.bodies(log) if body.file is not None}

    def statistics(self, log: int, first: int, following: int, damaged: Mapping[tuple[int, int], str]) -> LogStatistics:
        """Return the statistics of a log with the numbers `first` to `following` - 1.

        Rows in the places that are `damaged`, by log and body, are counted as if they were whole.
        """
        places = tuple(place for (its_log, _), place in list(damaged.items()) if its_log == log)
        with self.reading() as connection:
            asked = {"log": log, "first": first, "next": following}
            values = connection.execute(_STATISTICS, asked).fetchone()
            gaps, *newest = connection.execute(_NEWEST_GAP, asked).fetchone() or (0,)
        rows, size, first_time, last_time, unused = values
        lost, gap = following - first - rows - unused, _gap(*newest) if newest else None
        cleared = Gap(0, first - 1, Why.CLEARED) if first else None
        gaps += len(places) + (cleared is not None)
        return LogStatistics(rows, size, first, following, first_time, last_time, lost, places, gaps, gap or cleared)

    def end(self, log: int) -> tuple[int | None, str]:
        """Return the time (us UTC) to which a log is known to be complete, and why it does not go on.

        The time is None if nothing of the log is stored.
        """
        with self.reading() as connection:
            row = connection.execute(_END, {"log": log, "low": BEGINNING}).fetchone()
        return (None, "") if row is None or row[0] == BEGINNING else row

    def totals(self) -> tuple[int, int, int]:
        """Return the number of rows, the bytes and the number of files of all logs."""
        with self.reading() as connection:
            (rows,) = connection.execute("select coalesce(sum(rows), 0) from batches").fetchone()
        bodies = self.bodies()
        return int(rows), sum(body.bytes for body in bodies), sum(body.file is not None for body in bodies)

    def extents(self, log: int, first: int, following: int, wanted: Range) -> list[Extent]:
        """Return where the rows of a range are: an extent for each Parquet file, and one for the others."""
        low = max(first, wanted.from_seq or 0)
        high = following if wanted.until_seq is None else min(following, wanted.until_seq + 1)
        start = BEGINNING if wanted.from_time is None else wanted.from_time
        stop = END_OF_TIME if wanted.until_time is None else wanted.until_time
        files = json.dumps([*self.files(log)])
        with self.reading() as connection:
            asked = {"log": log, "low": low, "high": high, "start": start, "stop": stop, "files": files}
            return [Extent(*row) for row in connection.execute(_EXTENTS, asked).fetchall()]


def _unless_damaged(connection: sqlite3.Connection, statement: str, *values: object) -> list[Any] | None:
    """Return the rows of a statement; None if one of them is in a damaged page."""
    try:
        return connection.execute(statement, values).fetchall()
    except PROBLEMS as error:
        if not is_damage(error):
            raise
        return None


def _gap(
    log: int, first: int, last: int, why: str, start: int | None, stop: int | None, size: int | None = None
) -> Gap:
    return Gap(first, last, why, "", moment(start), moment(stop), size)


def _gap_entry(log: int, first: int, last: int, why: str, start: int, stop: int, size: int | None = None) -> Entry:
    return Entry(first, last + 1 - first, start, stop, bytes=size, why=why)


def prepare(connection: sqlite3.Connection) -> None:
    """Make the connection of a writer ready, and the tables in a new database."""
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = full")
    connection.execute(f"pragma wal_autocheckpoint = {WAL_PAGES}")
    (version,) = connection.execute("pragma user_version").fetchone()
    if version == 0:
        connection.executescript(f"begin immediate; {TABLES} pragma user_version = {VERSION}; commit")
    elif version != VERSION:
        raise sqlite3.DatabaseError("another version of the tables")
    elif "bytes" not in [row[1] for row in connection.execute("pragma table_info(gaps)").fetchall()]:
        connection.execute("alter table gaps add column bytes integer")
