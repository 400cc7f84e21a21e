from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflight.tables
from fastflight.errors import RequestError
from fastflight.tables import Layout, format_of, open_reader, open_writer, schema_from_names

TYPES = [
    pa.int8(), pa.uint64(), pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.large_string(), pa.binary(),
    pa.date32(), pa.date64(), pa.time32("s"), pa.time64("ns"), pa.timestamp("ns"), pa.timestamp("us", "UTC"),
    pa.duration("ms"), pa.timestamp("s", "Europe/Amsterdam"), pa.timestamp("s", "+01:00"), pa.decimal128(9, 2),
    pa.null(),
    pa.list_(pa.struct([("x", pa.list_(pa.int8())), ("y", pa.decimal128(3, 1)), ("z", pa.timestamp("us", "UTC"))])),
    pa.struct([]),
]  # fmt: skip


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_what_arrow_prints_is_understood(type_: pa.DataType) -> None:
    assert schema_from_names({"c": str(type_)}) == pa.schema([("c", type_)])


def test_common_spellings() -> None:
    assert schema_from_names({"a": "float64", "b": "timestamp[us, UTC]", "c": "list<int64>", "d": " utf8 "}).types == [
        pa.float64(), pa.timestamp("us", "UTC"), pa.list_(pa.int64()), pa.string(),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "strng",
        "",
        "list<",
        "list<>",
        "struct<x>",
        "timestamp[us, ;]",
        "decimal128(99, 2)",
        "decimal128(9, 39)",
        "decimal128(9, -39)",
        "list<" * 50 + "int8" + ">" * 50,
    ],
)
def test_unknown_types_are_refused(name: str) -> None:
    with pytest.raises(RequestError, match=r"^schema\.temp"):
        schema_from_names({"temp": name})


def test_the_nearest_type_is_named() -> None:
    with pytest.raises(RequestError, match="no Arrow type is named 'strng'. Did you mean 'string'"):
        schema_from_names({"temp": "strng"})


@pytest.mark.parametrize(
    ("name", "meant"),
    [("int", "int64"), ("Integer", "int64"), ("number", "float64"), ("str", "string"), ("boolean", "bool")]
    + [("timestamp", "timestamp[us]"), ("datetime", "timestamp[us]"), ("date", "date32"), ("bytes", "binary")],
)
def test_names_of_other_languages_name_the_type_that_is_meant(name: str, meant: str) -> None:
    with pytest.raises(RequestError) as refused:
        schema_from_names({"n": name})
    assert refused.value.hint.startswith(f"Did you mean {meant!r}?")
    assert schema_from_names({"n": meant})


@pytest.mark.parametrize(
    ("path", "format_"),
    [
        ("/a.csv", "csv"), ("/a.TSV", "csv"), ("b.jsonl", "jsonl"), ("b.ndjson", "jsonl"), ("c.arrow", "arrow"),
        ("c.arrows", "arrow"), ("c.ipc", "arrow"), ("/log.bin", "raw"), ("/a.csv/b", "raw"), ("csv", "raw"),
        ("", "raw"),
    ],
)  # fmt: skip
def test_the_ending_says_the_format(path: str, format_: str) -> None:
    assert format_of(path) == format_


def test_unknown_formats_name_the_nearest() -> None:
    for open_ in (lambda: open_reader(Layout("cvs")), lambda: open_writer(Layout("cvs"), pa.schema([]))):
        with pytest.raises(RequestError, match="format: no format is named 'cvs'. Did you mean 'csv'"):
            open_()


def test_everything_exported_is_there() -> None:
    assert all(hasattr(fastflight.tables, name) for name in fastflight.tables.__all__)


NAMED = (
    "int64", "float", "timestamp[us]", "timestamp[s, tz=Europe/Berlin]", "decimal128(38, -5)", "list<item: ",
    "struct<>", "struct<x: int64, y: string>", "struct<a: list<struct<b: time32[ms]>>, c: duration[ns]>", ">", ",",
)  # fmt: skip


@given(st.lists(st.sampled_from(NAMED) | st.text("<>[](),: -09aefilmnstux", max_size=4), max_size=6).map("".join))
def test_any_name_is_a_type_whose_own_name_means_the_same_or_is_refused(name: str) -> None:
    try:
        schema = schema_from_names({"c": name})
    except RequestError as error:
        assert str(error)
        return
    assert schema_from_names({"c": str(schema.field("c").type)}) == schema
    assert pa.RecordBatch.from_pylist([], schema).num_rows == 0
