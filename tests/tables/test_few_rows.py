"""A few rows are read as pyarrow reads them, or left to pyarrow."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fastflight.tables.csv import FALSE, TRUE
from fastflight.tables.few_rows import FEW_ROWS, FewRows

SCHEMA = pa.schema([("i", pa.int64()), ("f", pa.float64()), ("b", pa.bool_()), ("s", pa.string())])
HEADER = ["s", "f", "other", "b", "i"]

NUMBERS = st.integers() | st.integers(-(2**65), 2**65) | st.floats() | st.sampled_from([0, -0.0, 2**53, 2**53 + 1])
SCALARS = st.none() | st.booleans() | NUMBERS | st.text(max_size=5)
VALUES = SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(st.text(max_size=2), SCALARS, max_size=2)
OBJECTS = st.dictionaries(st.sampled_from(["i", "f", "b", "s", "other", "i "]), VALUES)
CELLS = (
    st.sampled_from(["", "true", "False", "0", "-0", "007", "-07", " 1", "1 ", "0x1f", "nan", "-inf", "1e999", ".5"])
    | st.sampled_from(["5.", "+1", "1_0", "\u0661", "NULL", "1e5", "9007199254740993", "9223372036854775808", "--1"])
    | st.sampled_from(["1e-999", "0" * 30 + "1.5", "9" * 40, "0.1" + "0" * 39])
    | st.integers(-(2**65), 2**65).map(str)
    | st.floats().map(repr)
    | st.text(max_size=4)
)


def few(schema: pa.Schema = SCHEMA) -> FewRows:
    return FewRows(schema, TRUE, FALSE)


def json_by_pyarrow(data: bytes) -> pa.Table | None:
    options = pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1)
    parse = pyarrow.json.ParseOptions(explicit_schema=SCHEMA, unexpected_field_behavior="ignore")
    try:
        return pyarrow.json.read_json(pa.BufferReader(data), options, parse).select(SCHEMA.names)
    except pa.ArrowInvalid:
        return None


def csv_by_pyarrow(data: bytes, header: list[str], schema: pa.Schema) -> pa.Table | None:
    try:
        return pyarrow.csv.read_csv(
            pa.BufferReader(data),
            pyarrow.csv.ReadOptions(use_threads=False, column_names=header),
            pyarrow.csv.ParseOptions(ignore_empty_lines=len(header) > 1),
            pyarrow.csv.ConvertOptions(
                column_types=schema, include_columns=schema.names, null_values=[""], true_values=TRUE,
                false_values=FALSE, strings_can_be_null=True, quoted_strings_can_be_null=False,
            ),
        )  # fmt: skip
    except pa.ArrowInvalid:
        return None


def require_same(batch: pa.RecordBatch | None, table: pa.Table | None) -> None:
    """A batch that was read at all holds what pyarrow reads."""
    if batch is not None:
        assert table is not None and table.schema.equals(batch.schema)
        assert repr(table.to_pylist()) == repr(batch.to_pylist())


def require_same_csv(data: bytes, header: list[str], schema: pa.Schema) -> None:
    # Cells that are not UTF-8 never come so far.
    if _is_utf8(data) and (batch := few(schema).from_csv(data, header, ",")) is not None:
        require_same(batch, csv_by_pyarrow(data, header, schema))


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_short_objects_are_read() -> None:
    data = b'{"i": 1, "f": 2, "b": true, "s": "three"}\n{"f": 0.5, "unknown": null}\r\n{}\n'
    batch = few().from_json(data, 3)
    assert batch is not None and batch.schema.equals(SCHEMA)
    assert batch.to_pylist() == [
        {"i": 1, "f": 2.0, "b": True, "s": "three"},
        {"i": None, "f": 0.5, "b": None, "s": None},
        {"i": None, "f": None, "b": None, "s": None},
    ]


def test_short_cells_are_read() -> None:
    batch = few().from_csv("é,2.5,x,true,1\n\n,,,,\n1,-100,,0,-7\n".encode(), HEADER, ",")
    assert batch is not None and batch.schema.equals(SCHEMA)
    assert batch.to_pylist() == [
        {"i": 1, "f": 2.5, "b": True, "s": "é"},
        {"i": None, "f": None, "b": None, "s": None},
        {"i": -7, "f": -100.0, "b": False, "s": "1"},
    ]


def test_an_empty_line_of_one_column_is_a_null() -> None:
    batch = few(pa.schema([SCHEMA.field("s")])).from_csv(b"a\n\n", ["s"], ",")
    assert batch is not None and batch.to_pylist() == [{"s": "a"}, {"s": None}]


@pytest.mark.parametrize(
    "row",
    [
        '{"i": 1.0}', '{"i": true}', '{"i": 9223372036854775808}', '{"f": 1e400}', '{"f": NaN}', '{"f": -0}',
        '{"f": 9007199254740993}', '{"s": 1}', '{"s": "\\ud800"}', '{"i": 1, "i": 2}', '{"s": [1]}', '{"x": {"y": 1}}',
        '{"x": Infinity}', '{"i": 01}', '{"i": 1} {"i": 2}', '{"i": 1', "[1]", '"text"', "",
    ],
)  # fmt: skip
def test_unusual_objects_are_left_to_pyarrow(row: str) -> None:
    assert few().from_json(row.encode() + b"\n", 1) is None


@pytest.mark.parametrize(
    "row",
    [
        ",,,, 1", ",,,,0x1", ",,,,9223372036854775808", ",,,,1.0", ",nan,,,", ",inf,,,", ",1e999,,,", ",.5,,,",
        ",,,yes,", "\"x\",,,,", "\0,,,,", ",,,,\r", "1,2", "1,,,,,", "\ufeff,,,,",
    ],
)  # fmt: skip
def test_unusual_cells_are_left_to_pyarrow(row: str) -> None:
    assert few().from_csv(row.encode() + b"\n", HEADER, ",") is None


def test_many_rows_and_other_types_are_left_to_pyarrow() -> None:
    times = few(pa.schema([("t", pa.timestamp("us"))]))
    assert few().from_json(b"{}\n" * (FEW_ROWS + 1), FEW_ROWS + 1) is None
    assert times.from_json(b"{}\n", 1) is None
    assert few(pa.schema([])).from_json(b"{}\n", 1) is None
    assert few().from_csv(b",,,,\n" * (FEW_ROWS + 1), HEADER, ",") is None
    assert few().from_csv(b",,,,\n,,,,", HEADER, ",") is None
    assert few().from_csv(b"", HEADER, ",") is None
    assert times.from_csv(b"\n", ["t"], ",") is None
    assert few(pa.schema([])).from_csv(b"1\n", ["t"], ",") is None


@settings(deadline=None)
@given(st.lists(OBJECTS, min_size=1, max_size=3), st.booleans(), st.sampled_from([(", ", ": "), (",", ":")]))
def test_objects_are_read_as_pyarrow_reads_them(rows: list[Any], ascii: bool, separators: tuple[str, str]) -> None:
    lines = [json.dumps(row, ensure_ascii=ascii, separators=separators) for row in rows]
    data = "".join(line + "\n" for line in lines).encode("utf-8", "surrogatepass")
    require_same(few().from_json(data, len(rows)), json_by_pyarrow(data))


@settings(deadline=None)
@given(st.text(alphabet='{}[]",:01-.eE+ infaultrse\\\t', max_size=30))
def test_garbage_for_objects_is_read_as_pyarrow_reads_it(text: str) -> None:
    data = b"{" + text.encode() + b"}\n"
    require_same(few().from_json(data, 1), json_by_pyarrow(data))


@settings(deadline=None)
@given(st.lists(st.lists(CELLS, min_size=5, max_size=5), min_size=1, max_size=3))
@example([["x", "-0", "", "1", "-0"]])
def test_cells_are_read_as_pyarrow_reads_them(rows: list[list[str]]) -> None:
    data = "".join(",".join(row) + "\n" for row in rows).encode("utf-8", "surrogatepass")
    require_same_csv(data, HEADER, SCHEMA)


@settings(deadline=None)
@given(st.sampled_from(SCHEMA.names), st.lists(CELLS, min_size=1, max_size=3))
def test_cells_of_one_column_are_read_as_pyarrow_reads_them(name: str, cells: list[str]) -> None:
    data = "".join(cell + "\n" for cell in cells).encode("utf-8", "surrogatepass")
    require_same_csv(data, [name], pa.schema([SCHEMA.field(name)]))


@settings(deadline=None)
@given(st.text(alphabet="0123456789,.-+eE \nftrue", max_size=40))
def test_garbage_for_cells_is_read_as_pyarrow_reads_it(text: str) -> None:
    require_same_csv(text.encode() + b"\n", HEADER, SCHEMA)
