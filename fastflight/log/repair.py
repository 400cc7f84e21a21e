"""Makes the tables of a damaged database anew, of what can still be read.

SQLite keeps a table in pages of 4 KiB, and cannot read what is in a damaged one. What is lost of the table of bodies is
the rows of these bodies. Entries are made again from the bodies, as these have the log and the number of each row. A
table that is replaced stays in the file, under another name, as SQLite cannot delete what it cannot read.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import Any
from zlib import crc32

import pyarrow as pa

from fastflight.gap import Why
from fastflight.log.bodies import decode, entries_of, log_of
from fastflight.log.database import ROW_TABLES, breaks_in, put_entries, seal
from fastflight.log.disk import PROBLEMS, LocalDisk, is_damage
from fastflight.log.leftovers import PARQUET_NAME
from fastflight.log.values import Entry

_PUT = "insert or ignore into bodies values (?, ?, ?, ?, ?, ?, ?, ?)"
_CONTENTS = "select id, log, crc, bytes, file, data from bodies order by ordinal, id"
_TIMES = (
    "select logs.id, logs.first, min(first_time), max(last_time) from logs join entries on log = logs.id group by 1"
)


def repair(connection: sqlite3.Connection, disk: LocalDisk) -> None:
    """Replace the tables of bodies and entries. Call it in a transaction. Raises `PROBLEMS` if that cannot help.

    Rows that are lost are damaged: nothing explains their numbers. If gaps are lost, each log gets one from its first
    row to its last.
    """
    (number,) = connection.execute("select count(*) from sqlite_master where name like 'damaged%'").fetchone()
    for table in ("bodies", "entries"):
        connection.execute(f"alter table {table} rename to damaged_{number}_{table}")
    for statement in ROW_TABLES.format(number + 1).split(";"):
        connection.execute(statement)
    for row in _readable(disk, "bodies"):
        if row is not None:
            connection.execute(_PUT, row)
    _add_files(connection, disk)
    has_all_gaps = True
    ends: dict[int, int] = {}
    for row in _readable(disk, "entries"):
        if row is None:
            has_all_gaps = False
            continue
        log, *values, its_seal = row
        if its_seal == seal(log, values):
            entry = Entry(*values)
            ends[log] = max(entry.end, ends.get(log, 0))
            if entry.why:
                put_entries(connection, [(log, entry)])
    # Their bodies may be lost, and numbers are not used again.
    connection.executemany("update logs set next = max(next, ?2) where id = ?1", ends.items())
    for body, log, crc, size, file, data in connection.execute(_CONTENTS):
        with contextlib.suppress(OSError, TypeError, ValueError):  # a file that is gone, or a changed value
            decoded = decode(disk.read(file) if file else data, crc, log if file else None)
            if decoded is not None:
                rows = decoded.keyed
                put_entries(connection, entries_of(rows, body, size, breaks_in(connection, rows)))
    if not has_all_gaps:
        for log, first, start, stop in connection.execute(_TIMES).fetchall():
            put_entries(connection, [(log, Entry(first, 0, start, stop, why=Why.DAMAGED.value))])


def _add_files(connection: sqlite3.Connection, disk: LocalDisk) -> None:
    """Insert the bodies whose Parquet files are there, and which were lost."""
    known = {file for (file,) in connection.execute("select file from bodies")}
    for name in disk.names():
        if (found := PARQUET_NAME.fullmatch(name)) and name not in known:
            with contextlib.suppress(OSError, ValueError, pa.ArrowException):
                data, number = disk.read(name), int(found[1])
                for (log,) in connection.execute("select id from logs where name = ?", (log_of(data),)).fetchall():
                    # When it was created is not known.
                    connection.execute(_PUT, (number, log, number, 0, crc32(data), len(data), name, None))


def _readable(disk: LocalDisk, table: str) -> Iterator[Any]:
    """Yield the rows of a table before the first damaged page, None if there is one, and the rows after the last.

    They are those before the transaction. A connection that has met a damaged page writes nothing any more, so this
    takes others.
    """
    reached = 0
    for order in ("asc", "desc"):
        asked = f"select rowid, * from {table} not indexed where rowid > ? order by rowid {order}"  # noqa: S608
        try:
            with contextlib.closing(disk.connect()) as connection:
                for number, *row in connection.execute(asked, (reached,)):
                    reached = number if order == "asc" else reached
                    yield row
            return
        except PROBLEMS as error:
            if not is_damage(error):
                raise
        if order == "asc":
            yield None
