"""What a `Source` takes, and what it says when something is missing."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from fastflight import Estimate, Source, SourceRequest
from fastflight.errors import RequestError, SourceError
from fastflight.service import Catalog, decode, encode
from tests.support.source_items import items
from tests.support.waiting import until

TABLE = pa.table({"n": [1, 2]})


class Sales(SourceRequest):
    type = "sales"
    year: int = 2026


class Nameless(SourceRequest):
    year: int = 2026


class Misnamed(SourceRequest):
    type = "my sales"


def read(request: Sales) -> Iterator[pa.Table]:
    yield TABLE


async def aread(request: Sales) -> AsyncIterator[pa.Table]:
    yield TABLE


@pytest.mark.parametrize(
    ("request_type", "functions", "says"),
    [
        (Sales, {}, "source sales: it has none of read, aread and write"),
        (Sales, {"describe": lambda request: TABLE.schema}, "none of read, aread and write"),
        (Sales, {"read": aread}, "source sales: read is async. Give it as aread"),
        (Sales, {"aread": read}, "source sales: aread is not async. Give it as read"),
        (Sales, {"read": read, "describe": aread}, "describe is async. Write it without async"),
        (Sales, {"read": TABLE}, "read is no function but Table"),
        (Sales, {"read": read, "timeout": 0}, "source sales: timeout is 0. Give seconds above 0, or None"),
        (Nameless, {"read": read}, 'Nameless: it has no type. As in class SalesRequest.*type = "sales"'),
        (Misnamed, {"read": read}, "'my sales' is no name for a type"),
        (dict, {"read": read}, "dict is no class derived from fastflight.SourceRequest"),
    ],
)
def test_a_registration_says_what_is_missing(request_type: Any, functions: dict[str, Any], says: str) -> None:
    with pytest.raises(RequestError, match=says):
        Source(request_type, **functions)


def test_a_class_is_a_source() -> None:
    class Service:
        request = Sales

        def read(self, request: Sales) -> pa.Table:
            return TABLE

    assert rows_of(Source.of(Service)) == rows_of(Source.of(Service())) == TABLE
    with pytest.raises(RequestError, match="dict is no source. Give a fastflight.Source, or a class with"):
        Source.of({})


def rows_of(source: Source[Any]) -> pa.Table:
    function = source.read
    assert function is not None
    reading = function(Sales())
    return pa.Table.from_batches([batch for batches in reading for batch in batches], reading.schema)


FRAME = pd.DataFrame({"n": [1, 2]})


@pytest.mark.parametrize(
    "rows",
    [TABLE, TABLE.to_batches()[0], FRAME, pl.DataFrame({"n": [1, 2]}), TABLE.to_reader()],
    ids=lambda it: type(it),
)
def test_forms_of_rows(rows: Any) -> None:
    assert rows_of(Source(Sales, read=lambda request: rows)).equals(TABLE)
    if not isinstance(rows, pa.RecordBatchReader):
        assert rows_of(Source(Sales, read=lambda request: [rows, rows])).equals(pa.concat_tables([TABLE, TABLE]))


def test_later_frames_get_the_types_of_the_first() -> None:
    frames = [pd.DataFrame({"s": ["a"], "x": [1.5]}), pd.DataFrame({"x": [None], "s": [None]})]
    assert rows_of(Source(Sales, read=lambda request: frames)).to_pydict() == {"s": ["a", None], "x": [1.5, None]}


def test_with_a_description_an_answer_may_be_empty() -> None:
    source = Source(Sales, read=lambda request: iter(()), describe=lambda request: Estimate(TABLE.schema, rows=0))
    assert rows_of(source).equals(TABLE.slice(0, 0))


@pytest.mark.parametrize(
    ("functions", "says"),
    [
        ({"describe": lambda request: None}, "describe returned NoneType. Return a pyarrow.Schema or an Estimate"),
        ({"parts": lambda request: []}, "parts returned something else than 1 to 1024 requests"),
        ({"parts": lambda request: [1]}, "parts returned something else than"),
        ({"parts": lambda request: 1 / 0}, "parts raised ZeroDivisionError"),
    ],
)
def test_what_is_wrong_with_a_description_or_parts(functions: dict[str, Any], says: str) -> None:
    made = Source(Sales, read=read, **functions)
    with pytest.raises(SourceError, match=f"source sales: {says}"):
        made.parts(Sales(), made.describe(Sales()))


def test_a_request_on_the_wire() -> None:
    catalog = Catalog()
    catalog.add(Source(Sales, read=read))
    assert encode(decode(b'{"type": "sales", "year": 2025}', catalog)) == b'{"type":"sales","mode":"async","year":2025}'
    with pytest.raises(RequestError, match="yaer: unknown key. Did you mean 'year'"):
        decode(b'{"type": "sales", "yaer": 2025}', catalog)


def from_sqlite(request: Sales) -> Iterator[pa.RecordBatch]:
    """A connection of sqlite3 and its cursor may be used, and closed, in one thread only."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for row in connection.execute("select 1 as n union select 2"):
            yield pa.record_batch({"n": [row[0]]})


@pytest.mark.parametrize("timeout", [None, 30.0])
def test_the_steps_of_an_answer_run_in_one_thread(timeout: float | None) -> None:
    before = threading.active_count()
    functions = Source(Sales, read=from_sqlite, timeout=timeout)
    assert functions.read is not None
    whole = [item["n"].to_pylist() for item in items(functions.read(Sales()))]
    assert whole == [[1], [2]]
    started = functions.read(Sales())
    started.close()  # the reader has left after the first rows
    never = functions.read(Sales())
    del started, never
    until(lambda: threading.active_count() == before)
