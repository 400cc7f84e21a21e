"""A table of a SQLite database, read and written.

READINGS_DB=readings.db fastflight serve --source sqlite_table:READINGS
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa

from fastflight import Source, SourceRequest

SCHEMA = pa.schema([("day", pa.string()), ("celsius", pa.float64())])


class ReadingsRequest(SourceRequest):
    """The readings of these days, both included."""

    type = "readings"
    first: str = ""
    last: str = "9999"


def database() -> sqlite3.Connection:
    """Open the database. The parts of an answer may be made in different threads, one at a time."""
    connection = sqlite3.connect(os.environ["READINGS_DB"], check_same_thread=False)
    connection.execute("create table if not exists readings (day text, celsius real)")
    return connection


def read(request: ReadingsRequest) -> Iterator[pa.RecordBatch]:
    with closing(database()) as opened:
        found = opened.execute(
            "select day, celsius from readings where day between ? and ? order by day", (request.first, request.last)
        )
        while rows := found.fetchmany(10_000):
            columns = zip(*rows, strict=True)
            yield pa.record_batch(
                [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], SCHEMA
            )


def write(request: ReadingsRequest, rows: pa.RecordBatchReader) -> None:
    """Add all rows, or none: the transaction ends when the client has sent all of them."""
    with closing(database()) as opened, opened:
        for batch in rows:
            opened.executemany("insert into readings values (:day, :celsius)", batch.to_pylist())


READINGS = Source(ReadingsRequest, read=read, write=write, describe=lambda request: SCHEMA)
