"""A few objects are read as pyarrow reads them, or left to it."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.json
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastflight.tables.objects import FEW_ROWS, FewObjects

SCHEMA = pa.schema([("i", pa.int64()), ("f", pa.float64()), ("b", pa.bool_()), ("s", pa.string())])

NUMBERS = st.integers() | st.integers(-(2**65), 2**65) | st.floats() | st.sampled_from([0, -0.0, 2**53, 2**53 + 1])
SCALARS = st.none() | st.booleans() | NUMBERS | st.text(max_size=5)
VALUES = SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(st.text(max_size=2), SCALARS, max_size=2)
OBJECTS = st.dictionaries(st.sampled_from(["i", "f", "b", "s", "other", "i "]), VALUES)


def by_pyarrow(data: bytes) -> pa.Table | None:
    options = pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1)
    parse = pyarrow.json.ParseOptions(explicit_schema=SCHEMA, unexpected_field_behavior="ignore")
    try:
        return pyarrow.json.read_json(pa.BufferReader(data), options, parse)
    except pa.ArrowInvalid:
        return None


def test_short_rows_are_read() -> None:
    data = b'{"i": 1, "f": 2, "b": true, "s": "three"}\n{"f": 0.5, "unknown": null}\r\n{}\n'
    batch = FewObjects(SCHEMA).read(data, 3)
    assert batch is not None
    assert batch.to_pylist() == [
        {"i": 1, "f": 2.0, "b": True, "s": "three"},
        {"i": None, "f": 0.5, "b": None, "s": None},
        {"i": None, "f": None, "b": None, "s": None},
    ]


@pytest.mark.parametrize(
    "row",
    [
        '{"i": 1.0}', '{"i": true}', '{"i": 9223372036854775808}', '{"f": 1e400}', '{"f": NaN}', '{"f": -0}',
        '{"f": 9007199254740993}', '{"s": 1}', '{"s": "\\ud800"}', '{"i": 1, "i": 2}', '{"s": [1]}', '{"x": {"y": 1}}',
        '{"x": Infinity}', '{"i": 01}', '{"i": 1} {"i": 2}', '{"i": 1', "[1]", '"text"', "",
    ],
)  # fmt: skip
def test_all_that_is_not_plain_is_left_to_pyarrow(row: str) -> None:
    assert FewObjects(SCHEMA).read(row.encode() + b"\n", 1) is None


def test_many_rows_and_other_types_are_left_to_pyarrow() -> None:
    assert FewObjects(SCHEMA).read(b"{}\n" * (FEW_ROWS + 1), FEW_ROWS + 1) is None
    assert FewObjects(pa.schema([("t", pa.timestamp("us"))])).read(b"{}\n", 1) is None
    assert FewObjects(pa.schema([])).read(b"{}\n", 1) is None


@settings(deadline=None)
@given(st.lists(OBJECTS, min_size=1, max_size=3), st.booleans(), st.sampled_from([(", ", ": "), (",", ":")]))
def test_what_is_read_here_is_what_pyarrow_reads(rows: list[Any], ascii: bool, separators: tuple[str, str]) -> None:
    lines = [json.dumps(row, ensure_ascii=ascii, separators=separators) for row in rows]
    data = "".join(line + "\n" for line in lines).encode("utf-8", "surrogatepass")
    compare(data, len(rows))


@settings(deadline=None)
@given(st.text(alphabet='{}[]",:01-.eE+ infaultrse\\\t', max_size=30))
def test_garbage_is_read_as_pyarrow_reads_it(text: str) -> None:
    compare(b"{" + text.encode() + b"}\n", 1)


def compare(data: bytes, rows: int) -> None:
    batch = FewObjects(SCHEMA).read(data, rows)
    if batch is None:
        return
    table = by_pyarrow(data)
    assert table is not None, data
    assert repr(table.select(SCHEMA.names).to_pylist()) == repr(batch.to_pylist())
