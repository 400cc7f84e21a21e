"""Python converts a few rows, Arrow converts many: values, nulls and rejected cells are the same."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.tables import Layout, TextOptions, csv, jsonl, open_reader
from fastflight.tables.schemas import PLAIN_TYPES

TYPES = [name for name in PLAIN_TYPES if "binary" not in name]
TYPES += ["timestamp[us, UTC]", "timestamp[ns, Europe/Berlin]", "decimal128(5, 2)"]
JSON_TYPES = [name for name in TYPES if "time32" not in name and "time64" not in name and "duration" not in name]
# Text that Python's `int` or `float` takes and a cast does not, or the other way round, and the ends of ranges.
CELLS = (
    *("", " ", "0", "1", "-0", "-1", "+1", "007", " 7 ", "1_000", "\u0663", "0x1F", "127", "128", "-129", "65536"),
    *("2147483648", "9007199254740993", "9223372036854775807", "9223372036854775808", "18446744073709551616"),
    *("1.5", "-1.5", ".5", "5.", "1e3", "1E-400", "1e400", "0.1", "16777217.0", "123456789.123456789012345678"),
    *("nan", "-nan", "inf", "-inf", "Infinity", "N/A", "None", "--", "true", "False", "TRUE", "t", "yes"),
    *("2026-01-31", "2026-01-31 23:59", "2026-01-31T23:59:59.123456Z", "2026-02-31", "23:59:59", "12:00", "x", "\xe9"),
)
# Makes many bytes of few rows.
WIDE = "x" * 200
CELL = (
    st.sampled_from(CELLS) | st.text("0123456789.+-eE_ ", max_size=24) | st.integers().map(str) | st.floats().map(str)
)
SCALAR = st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats() | st.sampled_from(CELLS)
VALUE = SCALAR | st.lists(SCALAR, max_size=2) | st.fixed_dictionaries({"x": SCALAR})


def read(layout: Layout, pieces: list[bytes]) -> tuple[list[pa.ChunkedArray], dict[str, Any]]:
    """Return columns, those of floats as text, because NaN is not equal to itself; and the summary."""
    reader = open_reader(layout)
    batches = [batch for piece in pieces for batch in reader.feed(piece)] + reader.finish()
    columns = pa.Table.from_batches(batches, reader.schema).columns
    is_float = pa.types.is_floating
    return [each.cast(pa.string()) if is_float(each.type) else each for each in columns], reader.summary.as_dict()


def read_both(layout: Layout, header: bytes, rows: list[bytes], times: int) -> None:
    assert read(layout, [header, *rows * times]) == read(layout, [header, b"".join(rows) * times])


@pytest.mark.parametrize("type_", TYPES)
def test_every_cell(type_: str) -> None:
    rows = [f"{cell},{WIDE}\n".encode() for cell in CELLS]
    read_both(Layout("csv", schema={"a": type_, "b": "string"}), b"a,b\n", rows, 1)
    values = [json.dumps({"a": cell}).encode() + b"\n" for cell in CELLS]
    if type_ in JSON_TYPES:
        read_both(Layout("jsonl", schema={"a": type_}), b"", values, 1)


@given(st.sampled_from(TYPES), st.lists(CELL, min_size=1, max_size=6), st.sampled_from([".", ","]))
def test_csv(type_: str, cells: list[str], decimal: Any) -> None:
    rows = [f"{cell};{WIDE}\n".encode() for cell in cells]
    options = TextOptions(delimiter=";", decimal=decimal)
    layout = Layout("csv", schema={"a": type_, "b": "string"}, text=options)
    read_both(layout, b"a;b\n", rows, csv.FEW_BYTES // sum(map(len, rows)) + 2)


@given(st.sampled_from(JSON_TYPES), st.lists(VALUE, min_size=1, max_size=4))
def test_jsonl(type_: str, values: list[Any]) -> None:
    rows = [json.dumps({"a": value, "b": 1}).encode() + b"\n" for value in values]
    read_both(Layout("jsonl", schema={"a": type_, "b": "int64"}), b"", rows, jsonl.FEW_ROWS // len(rows) + 2)
