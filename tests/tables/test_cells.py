"""A few cells are read as pyarrow reads them, or left to it."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fastflight.tables.cells import FewCells
from fastflight.tables.csv import FALSE, TRUE
from fastflight.tables.objects import FEW_ROWS

HEADER = ["i", "f", "other", "b", "s"]
SCHEMA = pa.schema([("s", pa.string()), ("i", pa.int64()), ("f", pa.float64()), ("b", pa.bool_())])

CELLS = (
    st.sampled_from(["", "true", "False", "0", "-0", "007", " 1", "1 ", "0x1f", "nan", "-inf", "1e999", "1e-999", ".5"])
    | st.sampled_from(["5.", "+1", "1_0", "\u0661", "NULL", "1e5", "9007199254740993", "9223372036854775808", "--1"])
    | st.integers(-(2**65), 2**65).map(str)
    | st.floats().map(repr)
    | st.text(max_size=4)
)


def few(header: list[str] = HEADER, schema: pa.Schema = SCHEMA, delimiter: bytes = b",") -> FewCells:
    return FewCells(header, schema, delimiter, TRUE, FALSE)


def by_pyarrow(data: bytes, header: list[str], schema: pa.Schema) -> pa.Table | None:
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


def test_short_rows_are_read() -> None:
    batch = few().read("1,2.5,x,true,é\n\n,,,,\n-7,-1e3,,0,1\n".encode())
    assert batch is not None and batch.schema.equals(SCHEMA)
    assert batch.to_pylist() == [
        {"s": "é", "i": 1, "f": 2.5, "b": True},
        {"s": None, "i": None, "f": None, "b": None},
        {"s": "1", "i": -7, "f": -1000.0, "b": False},
    ]


def test_an_empty_line_of_one_column_is_a_null() -> None:
    batch = few(["s"], pa.schema([SCHEMA.field("s")])).read(b"a\n\n")
    assert batch is not None and batch.to_pylist() == [{"s": "a"}, {"s": None}]


@pytest.mark.parametrize(
    "row",
    [
        "01,,,,", " 1,,,,", "0x1,,,,", "9223372036854775808,,,,", "-0,,,,", "1.0,,,,", ",nan,,,", ",inf,,,",
        ",1e999,,,", ",.5,,,", ",,,yes,", ",,,,\"x\"", ",,,,\0", ",,,,\r", "1,2", "1,,,,,", "\ufeff,,,,",
    ],
)  # fmt: skip
def test_all_that_is_not_plain_is_left_to_pyarrow(row: str) -> None:
    assert few().read(row.encode() + b"\n") is None


def test_many_rows_and_other_types_are_left_to_pyarrow() -> None:
    assert few().read(b",,,,\n" * (FEW_ROWS + 1)) is None
    assert few().read(b",,,,\n,,,,") is None
    assert few().read(b"") is None
    assert few(["t"], pa.schema([("t", pa.timestamp("us"))])).read(b"\n") is None
    assert few(["t"], pa.schema([])).read(b"1\n") is None


@settings(deadline=None)
@given(st.lists(st.lists(CELLS, min_size=5, max_size=5), min_size=1, max_size=3))
@example([["1", "-0", "", "1", "x"]])
def test_what_is_read_here_is_what_pyarrow_reads(rows: list[list[str]]) -> None:
    compare("".join(",".join(row) + "\n" for row in rows).encode("utf-8", "surrogatepass"), HEADER, SCHEMA)


@settings(deadline=None)
@given(st.sampled_from(SCHEMA.names), st.lists(CELLS, min_size=1, max_size=3))
def test_a_table_of_one_column_is_read_as_pyarrow_reads_it(name: str, cells: list[str]) -> None:
    compare(
        "".join(cell + "\n" for cell in cells).encode("utf-8", "surrogatepass"), [name], pa.schema([SCHEMA.field(name)])
    )


@settings(deadline=None)
@given(st.text(alphabet="0123456789,.-+eE \nftrue", max_size=40))
def test_garbage_is_read_as_pyarrow_reads_it(text: str) -> None:
    compare(text.encode() + b"\n", HEADER, SCHEMA)


def compare(data: bytes, header: list[str], schema: pa.Schema) -> None:
    try:
        data.decode()
    except UnicodeDecodeError:
        return
    batch = few(header, schema).read(data)
    if batch is None:
        return
    table = by_pyarrow(data, header, schema)
    assert table is not None, data
    assert repr(table.to_pylist()) == repr(batch.to_pylist())
    assert table.schema.equals(batch.schema)
