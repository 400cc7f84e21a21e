"""The tables of a folder of recordings, and what is asked of them.

    logs      a log: its name, the first number that was not deleted, and a lower limit of the next one; to which time
              it is complete, and why it does not go on after that
    bodies    rows: an Arrow record batch in `data`, or a Parquet file; the crc32 of its bytes
    entries   numbers of one log: rows, and where they are in a body; or what is missing, and `why`

A body has columns for the log and the number of each row, so a reader finds out if an entry names the wrong place.
`log` of a body is null if it has the rows of many logs: what all of them appended in one commit. `ordinal` is the order
in which bodies were appended; one that replaces others has the last of theirs. `seal` is a checksum of an entry.

Reading raises `StorageError` if the disk or the database fails. Any thread may use a `Database`.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from zlib import crc32

import pyarrow as pa

from fastflight.errors import StorageError
from fastflight.log.disk import DATABASE, PROBLEMS, LocalDisk, failure, is_damage
from fastflight.log.values import Entry

# Another number means another layout of the tables.
VERSION = 3
LOG_TABLE = """
create table logs (
    id integer primary key, name text not null unique, first integer not null, next integer not null,
    complete_to integer, ended text not null default 'server down'
)
"""
# To be formatted with an ending for the names of indexes.
ROW_TABLES = """
create table bodies (
    id integer primary key autoincrement, log integer, ordinal integer not null, created integer not null,
    crc integer not null, bytes integer not null, file text, data blob
);
create index bodies_by_ordinal{0} on bodies (ordinal);
create index bodies_by_log{0} on bodies (log) where log is not null;
create table entries (
    log integer not null, first integer not null, rows integer not null, first_time integer, last_time integer,
    body integer not null, at integer not null, bytes integer, why text not null, seal integer not null
);
create index entries_by_log{0} on entries (log, first)
"""
# SQLite moves its log of changes into the tables when it has so many pages of 4 KiB.
WAL_PAGES = 512
# The checksum of a body that is lost: no bytes have it.
NO_CRC = -1
# Entries that a reader asks for at once.
PAGE = 512

_ENTRIES = """
select logs.first, found.* from logs left join (
    select first, rows, first_time, last_time, body, at, bytes, why, seal from entries
    where log = :log and first < :high
        and first >= coalesce((select max(first) from entries where log = :log and first <= :low), :low)
    order by first, rows limit :limit
) as found where id = :log order by found.first, found.rows
"""
_LOGS = """
select id, name, first,
    max(next, coalesce((select first + rows from entries where log = id order by first desc, rows desc limit 1), 0))
from logs where :name is null or name = :name order by name
"""
_POSITIONS = "select ordinal, id from bodies where (ordinal, id) > (?, ?) order by ordinal, id limit ?"
_BODIES = "select id, log, ordinal, created, bytes, file from bodies"
_BREAKS = """
select log, first from json_each(?) as wanted join entries on log = json_extract(wanted.value, '$[0]')
    and first between json_extract(wanted.value, '$[1]') and json_extract(wanted.value, '$[2]')
    and rows = 0 and why <> ''
"""
_BODY_WITH = "select body from entries where log = ? and why = '' and first + rows > ? order by first limit 1"


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


class Database:
    """The database of a folder. It is opened when it is first asked."""

    def __init__(self, disk: LocalDisk) -> None:
        self.disk = disk
        self._free: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._closed = False
        # Whether a damaged page was found.
        self.is_damaged = False

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
                self.is_damaged = self.is_damaged or is_damage(error)
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
        return [LogRow(*row) for row in self.rows(_LOGS, {"name": name})]

    def entries(self, log: int, low: int, high: int) -> tuple[int, list[Entry]]:
        """Return the first number of a log that was not deleted, and entries at one moment.

        They are the first ones with numbers from `low` on and below `high`, in order; maybe one before them. An entry
        whose seal is broken is left out: its numbers are explained by nothing, so they are damaged.
        """
        found = self.rows(_ENTRIES, {"log": log, "low": low, "high": high, "limit": PAGE})
        # Without entries, there is one row that has only the number.
        entries = [Entry(*values) for _, *values, its_seal in found if its_seal == seal(log, values)]
        return found[0][0] if found else 0, entries

    def body(self, number: int) -> Body | None:
        """Return a body; None if there is none of that number any more. One in a damaged page has no content."""
        try:
            found = self.rows("select log, crc, file, data from bodies where id = ?", (number,))
        except StorageError as error:
            if not is_damage(error.__cause__):
                raise
            return Body(None, NO_CRC, None, None)
        return Body(*found[0]) if found else None

    def bodies(self, log: int | None = None) -> list[BodyRow]:
        """Return all bodies in order, or only those of one log."""
        every = "" if log is None else " where log = :log"
        return [BodyRow(*row) for row in self.rows(f"{_BODIES}{every} order by ordinal, id", {"log": log})]

    def positions(self, after: BodyPosition = BEFORE_ALL, limit: int = PAGE) -> list[BodyPosition]:
        """Return the positions of the next bodies after one."""
        return [BodyPosition(*row) for row in self.rows(_POSITIONS, (*after, limit))]

    def position_before(self, ends: Iterable[tuple[int, int]]) -> BodyPosition:
        """Return the position before the first rows of any log, given by number, from a number of its own on."""
        with self.reading() as connection:
            connection.execute("begin")
            places = connection.execute(_POSITIONS, (*BEFORE_ALL, -1)).fetchall()
            bodies = {body for end in ends for (body,) in connection.execute(_BODY_WITH, end).fetchall()}
            connection.execute("commit")
        before = [BodyPosition(ordinal, number - 1) for ordinal, number in places if number in bodies]
        return min([*before, *(BodyPosition(*place) for place in places[-1:])], default=BEFORE_ALL)

    def rows(self, statement: str, values: Any = ()) -> list[Any]:
        """Return all rows of a statement."""
        with self.reading() as connection:
            return connection.execute(statement, values).fetchall()


def seal(log: int, values: Iterable[Any]) -> int:
    """Return the checksum of an entry of a log."""
    return crc32(repr([log, *values]).encode())


def put_entries(connection: sqlite3.Connection, entries: Iterable[tuple[int, Entry]]) -> None:
    """Insert entries, each with the number of its log."""
    rows = [(log, *entry, seal(log, entry)) for log, entry in entries]
    connection.executemany("insert into entries values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)


def put_body(
    connection: sqlite3.Connection,
    number: int,
    log: int | None,
    ordinal: int,
    created: int,
    data: memoryview | bytes,
    file: str | None = None,
) -> None:
    """Insert a body: `data`, or the file of this name that has it."""
    row = (number, log, ordinal, created, crc32(data), len(data), file, None if file else data)
    connection.execute("insert into bodies values (?, ?, ?, ?, ?, ?, ?, ?)", row)


def delete_bodies(connection: sqlite3.Connection, bodies: Iterable[int]) -> None:
    """Delete bodies."""
    # Their numbers are JSON, because SQLite limits the parameters of a statement.
    connection.execute("delete from bodies where id in (select value from json_each(?))", (json.dumps([*bodies]),))


def breaks_in(connection: sqlite3.Connection, rows: pa.RecordBatch) -> list[tuple[int, int]]:
    """Return the logs and numbers of those of `rows` before which something without a number is missing."""
    wanted = pa.table(rows.columns[:2], ["log", "seq"]).group_by("log").aggregate([("seq", "min"), ("seq", "max")])
    ranges = zip(*(wanted.column(name).to_pylist() for name in ("log", "seq_min", "seq_max")), strict=True)
    return connection.execute(_BREAKS, (json.dumps(list(ranges)),)).fetchall()


def delete_entries(connection: sqlite3.Connection, bodies: Iterable[int]) -> None:
    """Delete the entries of bodies."""
    connection.execute("delete from entries where body in (select value from json_each(?))", (json.dumps([*bodies]),))


def prepare(connection: sqlite3.Connection) -> None:
    """Make the connection of a writer ready, and the tables in a new database."""
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = full")
    connection.execute(f"pragma wal_autocheckpoint = {WAL_PAGES}")
    (version,) = connection.execute("pragma user_version").fetchone()
    if version == 0:
        tables = f"{LOG_TABLE}; {ROW_TABLES.format(0)}"
        connection.executescript(f"begin immediate; {tables}; pragma user_version = {VERSION}; commit")
    elif version != VERSION:
        raise sqlite3.DatabaseError("another version of the tables")
