from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastflight.errors import DataError
from fastflight.tables import Layout, open_writer


def test_csv(write: Any) -> None:
    table = pa.table(
        {
            "id": [1, None],
            "f,x": [1.0, math.nan],
            "text": ['a "b"', ""],
            "at": pa.array([datetime(2024, 1, 1, 12, tzinfo=UTC), None], pa.timestamp("ms", "Europe/Amsterdam")),
            "day": [date(2024, 2, 29), None],
            "tag": pa.array(["x", None]).dictionary_encode(),
        }
    )
    assert write(table, "csv").decode().splitlines() == [
        'id,"f,x",text,at,day,tag',
        '1,1.0,"a ""b""",2024-01-01T12:00:00.000Z,2024-02-29,x',
        ',nan,"",,,',
    ]
    assert write(table, "csv", columns=("tag", "id")) == b"tag,id\nx,1\n,\n"


def test_jsonl(write: Any) -> None:
    table = pa.table({"f": [1.0, None], "at": [datetime(2024, 1, 1), None], "o": [{"l": [None, 1.0]}, None]})
    assert write(table, "jsonl").decode().splitlines() == [
        '{"f":1.0,"at":"2024-01-01T00:00:00.000000","o":{"l":[null,1.0]}}',
        '{"f":null,"at":null,"o":null}',
    ]


@pytest.mark.parametrize("value", [math.nan, math.inf, [math.nan], {"l": [1.0, -math.inf]}], ids=str)
def test_numbers_that_json_does_not_have_are_null(write: Any, value: Any) -> None:
    written = json.loads(write(pa.table({"f": [value]}), "jsonl"))["f"]
    assert written == (None if isinstance(value, float) else [None] if isinstance(value, list) else {"l": [1.0, None]})


@pytest.mark.parametrize(
    ("format_", "type_"),
    [("csv", pa.binary()), ("csv", pa.list_(pa.int8())), ("csv", pa.binary(4)), ("jsonl", pa.binary())]
    + [("jsonl", pa.duration("s")), ("jsonl", pa.list_(pa.binary())), ("jsonl", pa.map_(pa.string(), pa.int8()))],
    ids=str,
)
def test_types_that_text_can_not_hold(format_: str, type_: pa.DataType) -> None:
    with pytest.raises(DataError, match=rf"^column blob: {format_} can not hold .*\. Write it as "):
        open_writer(Layout(format_), pa.schema([("blob", type_)]))


@pytest.mark.parametrize("format_", ["csv", "jsonl"])
@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (pa.timestamp("s"), 2**62),
        (pa.timestamp("us"), -(2**62)),
        (pa.timestamp("ms", "UTC"), 253_402_300_800_000),
        (pa.timestamp("s", "Europe/Amsterdam"), -62_167_219_201),
        (pa.date32(), 2**31 - 1),
        (pa.date64(), 253_402_300_800_000),
    ],
)
def test_times_that_have_no_text_are_refused(format_: str, type_: pa.DataType, value: int) -> None:
    number = pa.int32() if type_ == pa.date32() else pa.int64()
    schema = pa.schema([("at", type_)])
    column = pa.array([None, value], number).cast(type_)
    with pytest.raises(DataError, match=r"column at: a value lies beyond the years 0 to 9999"):
        open_writer(Layout(format_), schema).encode(pa.record_batch([column], schema=schema))


def test_the_first_and_the_last_time_have_text(write: Any) -> None:
    edges = pa.array([-62_167_219_200, 253_402_300_799], pa.int64()).cast(pa.timestamp("s"))
    assert write(pa.table({"at": edges}), "csv") == b"at\n0000-01-01T00:00:00\n9999-12-31T23:59:59\n"


def test_tables_that_could_not_be_read_back() -> None:
    with pytest.raises(DataError, match="two columns are named 'a'"):
        open_writer(Layout("csv"), pa.schema([("a", pa.int8()), ("a", pa.int8())]))
    with pytest.raises(DataError, match="the table has no columns"):
        open_writer(Layout("jsonl"), pa.schema([]))


def test_batches_of_another_schema_are_refused() -> None:
    writer = open_writer(Layout("csv"), pa.schema([("a", pa.int64())]))
    with pytest.raises(DataError, match="column 'a' is string, not int64"):
        writer.encode(pa.record_batch([pa.array(["x"])], ["a"]))
    with pytest.raises(DataError, match="the batch has no column 'a'"):
        writer.encode(pa.record_batch([pa.array(["x"])], ["b"]))


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(
    ['"', ",", "\r\n", "\ufeff", "nan"]
)
# Names that are text, and hold any character but a line end.
NAMES = TEXT.map(lambda text: f"n{text}e".replace("\r", "").replace("\n", ""))
TIMES = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))
PLAIN: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.uint8(), st.integers(0, 255)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    (pa.float32(), st.floats(width=32, allow_nan=False, allow_infinity=False)),
    (pa.bool_(), st.booleans()),
    (pa.string(), TEXT),
    (pa.timestamp("us"), TIMES),
    (pa.timestamp("us", "UTC"), TIMES),
    (pa.timestamp("s"), TIMES.map(lambda at: at.replace(microsecond=0))),
    (pa.date32(), TIMES.map(datetime.date)),
    (pa.decimal128(9, 2), st.decimals(-1000, 1000, places=2)),
]


def tables(kinds: list[tuple[pa.DataType, st.SearchStrategy[Any]]]) -> st.SearchStrategy[pa.Table]:
    @st.composite
    def draw_table(draw: Any) -> pa.Table:
        names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
        rows = draw(st.integers(0, 5))
        columns = {}
        for name in names:
            type_, values = draw(st.sampled_from(kinds))
            columns[name] = pa.array(draw(st.lists(st.none() | values, min_size=rows, max_size=rows)), type_)
        return pa.table(columns)

    return draw_table()


NESTED: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.list_(pa.int64()), st.lists(st.none() | st.integers(-5, 5), max_size=3)),
    (pa.struct([("x", pa.float64()), ("y", pa.string())]), st.fixed_dictionaries({"x": st.none(), "y": TEXT})),
]


def test_bytes_are_base64_if_wanted(write: Any) -> None:
    table = pa.table({"n": pa.array([1, 2, 3]), "data": pa.array([b"\0\xff", b"", None], pa.binary())})
    assert write(table, "csv", bytes_as="base64") == b'n,data\n1,AP8=\n2,""\n3,\n'
    assert write(table.slice(0, 1), "jsonl", bytes_as="base64") == b'{"n":1,"data":"AP8="}\n'


@settings(max_examples=60, deadline=None)
@given(tables(PLAIN))
def test_csv_reads_back_what_was_written(read: Any, write: Any, table: pa.Table) -> None:
    schema = {field.name: str(field.type) for field in table.schema}
    seen = read(write(table, "csv"), "csv", schema=schema)
    assert (seen.reasons, seen.rows) == ([], table.to_pylist())


@settings(max_examples=60, deadline=None)
@given(tables(PLAIN + NESTED))
def test_jsonl_reads_back_what_was_written(read: Any, write: Any, table: pa.Table) -> None:
    schema = {field.name: str(field.type) for field in table.schema}
    seen = read(write(table, "jsonl"), "jsonl", schema=schema)
    assert (seen.reasons, seen.rows) == ([], table.to_pylist())


@settings(max_examples=30, deadline=None)
@given(tables([item for item in PLAIN if item[0] in (pa.int64(), pa.float64(), pa.bool_(), pa.timestamp("us", "UTC"))]))
def test_inference_finds_the_types_that_were_written(read: Any, write: Any, table: pa.Table) -> None:
    table = table.drop_columns([name for name in table.column_names if table[name].null_count == len(table)])
    if table.num_columns:
        assert read(write(table, "csv"), "csv").rows == table.to_pylist()
        assert read(write(table, "jsonl"), "jsonl").rows == table.to_pylist()
