"""Tables of every Arrow type, written to a board and read back.

`OUTCOMES` says for each type and format which of these is right: the table comes back equal by value (`same`; `null`:
with null for NaN and infinities), or the write is refused with an error that names the column and its type, and the
board's file stays as it was (`refused`).
"""

from __future__ import annotations

import contextlib
import decimal
import math
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from .conftest import BoardServer

UNITS = ("s", "ms", "us", "ns")
INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
BEFORE = b"what was there before\n"
# Dictionaries and runs are looked up before anything asks for their type: these stand for all types.
ENCODED = (
    "bool", "int64", "double", "decimal128(38, 2)", "date32[day]", "time32[s]", "timestamp[us, tz=UTC]", "string",
    "string_view", "binary", "fixed_size_binary[3]", "month_day_nano_interval",
)  # fmt: skip


def simple() -> Iterator[tuple[pa.DataType, list[Any]]]:
    """Types that are not nested, with a null among their values."""
    yield pa.null(), [None, None]
    yield pa.bool_(), [True, None, False]
    for type_ in INTEGERS:
        least = 0 if pa.types.is_unsigned_integer(type_) else -(2 ** (type_.bit_width - 1))
        yield type_, [least, None, least + 2**type_.bit_width - 1]
    for type_ in (pa.float16(), pa.float32(), pa.float64()):
        yield type_, [1.5, None, -0.25]
    for make, digits in ((pa.decimal32, 9), (pa.decimal64, 18), (pa.decimal128, 38), (pa.decimal256, 76)):
        yield make(digits, 2), [decimal.Decimal("1.25"), None, decimal.Decimal("-12345.67")]
        yield make(5, 0), [decimal.Decimal(12345), None, decimal.Decimal(-1)]
    yield pa.date32(), [0, None, 19_000]
    yield pa.date64(), [0, None, 19_000 * 86_400_000]
    for unit in UNITS:
        time = pa.time32 if unit in ("s", "ms") else pa.time64
        yield time(unit), [0, None, 86_399]
        yield pa.duration(unit), [-5, None, 10**9]
        for zone in (None, "UTC", "Europe/Berlin", "+02:00") if unit == "us" else (None, "UTC"):
            yield pa.timestamp(unit, zone), [0, None, 1_700_000_001]
    yield pa.month_day_nano_interval(), [pa.MonthDayNano([1, -2, 3]), None]
    for text in (pa.string(), pa.large_string(), pa.string_view()):
        yield text, ["", None, 'a,b\n"c"', "ünïcode that is longer than twelve bytes", " one"]
    for data in (pa.binary(), pa.large_binary(), pa.binary_view()):
        yield data, [b"", None, bytes(range(256))]
    yield pa.binary(3), [b"abc", None]


def arrays() -> Iterator[tuple[str, pa.Array]]:
    """Columns by name."""
    for type_, values in simple():
        yield str(type_), pa.array(values, type_)
    for number in ([1.5, float("nan"), float("inf"), -float("inf")],):
        for type_ in (pa.float16(), pa.float32(), pa.float64()):
            yield f"{type_}, not finite", pa.array(number, type_)
    yield "list, not finite", pa.array([[float("nan")], [1.0]], pa.list_(pa.float64()))
    for index in INTEGERS:
        yield f"dictionary by {index}", dictionary(pa.array(["a", "b,\n"]), index)
    for type_, values in simple():
        if str(type_) in ENCODED:
            yield (
                f"dictionary of {type_}",
                dictionary(pa.array([value for value in values if value is not None], type_)),
            )
            if not pa.types.is_interval(type_):
                yield (
                    f"runs of {type_}",
                    pa.RunEndEncodedArray.from_arrays([2, 3, 6][: len(values)], pa.array(values[:3], type_)),
                )
    yield "dictionary of null", pa.DictionaryArray.from_arrays(pa.array([0, None], pa.int8()), pa.nulls(1))
    for ends in (pa.int16(), pa.int32(), pa.int64()):
        yield f"runs by {ends}", pa.RunEndEncodedArray.from_arrays(pa.array([2, 5], ends), pa.array(["a", None]))
    numbers = pa.int32()
    for nested in (
        pa.list_(numbers), pa.large_list(numbers), pa.list_view(numbers), pa.large_list_view(numbers),
        pa.list_(pa.string_view()), pa.list_(pa.list_(numbers)), pa.list_(pa.struct([("x", numbers)])),
    ):  # fmt: skip
        made = [[], None, [1, None, 3]]
        if nested.value_type == pa.string_view():
            made = [[], None, ["a", None]]
        elif pa.types.is_nested(nested.value_type):
            made = [[], None, [[1], None]] if pa.types.is_list(nested.value_type) else [[], None, [{"x": 1}, None]]
        yield str(nested), pa.array(made, nested)
    yield "fixed_size_list", pa.array([[1, 2], None, [3, None]], pa.list_(numbers, 2))
    yield (
        "struct",
        pa.array([{"x": 1, "y": "a"}, None, {"x": None, "y": "b"}], pa.struct([("x", numbers), ("y", pa.string())])),
    )
    yield "struct of a time", pa.array([{"t": 1}], pa.struct([("t", pa.timestamp("s"))]))
    yield "struct of two fields of one name", pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"])
    yield "struct without fields", pa.array([{}, None], pa.struct([]))
    yield "map", pa.array([[("a", 1)], None, []], pa.map_(pa.string(), numbers))
    types, offsets = pa.array([0, 1, 0], pa.int8()), pa.array([0, 0, 1], pa.int32())
    yield "dense union", pa.UnionArray.from_dense(types, offsets, [pa.array([1, 2]), pa.array(["a"])])
    yield "sparse union", pa.UnionArray.from_sparse(types, [pa.array([1, 0, 2]), pa.array(["", "a", ""])])
    yield "list of a dictionary", pa.ListArray.from_arrays([0, 1], dictionary(pa.array(["a", "b"]))[:1])
    yield "dictionary of lists", pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array([[1]]))
    yield "uuid", pa.array([uuid.UUID(int=5).bytes, None], pa.uuid())
    yield "json", pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a":1}', None]))
    yield "bool8", pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, None, 0], pa.int8()))
    yield "opaque", pa.ExtensionArray.from_storage(pa.opaque(pa.int64(), "t", "v"), pa.array([1, None]))
    yield (
        "tensor",
        pa.FixedShapeTensorArray.from_storage(
            pa.fixed_shape_tensor(numbers, [2]), pa.array([[1, 2], [3, 4]], pa.list_(numbers, 2))
        ),
    )
    yield "a slice", pa.array(["x", "y", None, "z"])[1:3]
    yield "a slice of views", pa.array(["x", "y, longer than twelve bytes", None, "z"], pa.string_view())[1:3]
    words = pa.RunEndEncodedArray.from_arrays([2, 3, 5], pa.array(["a", None, "b"], pa.string_view()))
    yield "a slice of runs", words[1:4]
    yield "a slice of a dictionary", dictionary(pa.array(["a", "b"], pa.string_view()))[1:]


def dictionary(values: pa.Array, index: pa.DataType | None = None) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array([0, None, len(values) - 1], index or pa.int32()), values)


def tables() -> Iterator[tuple[str, pa.Table]]:
    for name, column in arrays():
        yield name, pa.table([pa.array(range(len(column))), column], ["n", "c"])
    first, second = dictionary(pa.array(["a", "b"])), dictionary(pa.array(["c", "d"]))
    grown = dictionary(pa.array(["a", "b", "e"]))
    for name, chunks in (("replaced", [first, second]), ("that grows", [first, grown])):
        yield f"dictionary {name}", pa.table({"c": pa.chunked_array(chunks)})
    yield "no rows", pa.table({"n": pa.array([], pa.int64()), "c": pa.array([], pa.string_view())})
    yield "no batches", pa.Table.from_batches([], pa.schema([("c", pa.string())]))
    yield "no columns", pa.table({})
    yield "two columns of one name", pa.table([pa.array([1]), pa.array([2])], ["c", "c"])
    metadata = pa.schema([pa.field("c", pa.int64(), metadata={"unit": "V"})], metadata={"made": "here"})
    yield "metadata", pa.table([pa.array([1])], schema=metadata)
    yield "not nullable", pa.table([pa.array([1])], schema=pa.schema([pa.field("c", pa.int64(), nullable=False)]))


TABLES = dict(tables())
FORMATS = ("arrow", "csv", "jsonl", "packed")
# By table: the outcomes in `FORMATS`; `-` has nothing to pack. Dictionaries and runs of a type have those of the type.
# All other tables are the same in every format.
OUTCOMES = """
decimal32(9, 2)                  | same    same    same    refused
decimal32(5, 0)                  | same    same    same    refused
decimal64(18, 2)                 | same    same    same    refused
decimal64(5, 0)                  | same    same    same    refused
decimal128(38, 2)                | same    same    same    refused
decimal128(5, 0)                 | same    same    same    refused
decimal256(76, 2)                | same    same    same    refused
decimal256(5, 0)                 | same    same    same    refused
time32[s]                        | same    same    refused same
duration[s]                      | same    same    refused same
time32[ms]                       | same    same    refused same
duration[ms]                     | same    same    refused same
time64[us]                       | same    same    refused same
duration[us]                     | same    same    refused same
time64[ns]                       | same    same    refused same
duration[ns]                     | same    same    refused same
month_day_nano_interval          | same    refused refused refused
binary                           | same    refused refused refused
large_binary                     | same    refused refused refused
binary_view                      | same    refused refused refused
fixed_size_binary[3]             | same    refused refused same
halffloat, not finite            | same    same    null    same
float, not finite                | same    same    null    same
double, not finite               | same    same    null    same
list, not finite                 | same    refused null    refused
list<item: int32>                | same    refused same    refused
large_list<item: int32>          | same    refused same    refused
list_view<item: int32>           | same    refused same    refused
large_list_view<item: int32>     | same    refused same    refused
list<item: string_view>          | same    refused same    refused
list<item: list<item: int32>>    | same    refused same    refused
list<item: struct<x: int32>>     | same    refused same    refused
fixed_size_list                  | same    refused same    refused
struct                           | same    refused same    refused
struct of a time                 | same    refused refused refused
struct of two fields of one name | same    refused refused -
struct without fields            | same    refused same    refused
map                              | same    refused refused refused
dense union                      | same    refused refused refused
sparse union                     | same    refused refused refused
list of a dictionary             | refused refused refused refused
dictionary of lists              | refused refused refused refused
uuid                             | same    refused refused same
tensor                           | same    refused same    refused
no columns                       | same    refused refused -
two columns of one name          | same    refused refused -
"""


def outcomes() -> dict[tuple[str, str], str]:
    """The outcome of each table in each format."""
    listed = dict(line.rsplit(" | ", 1) for line in OUTCOMES.strip().splitlines())
    of_type = {name.strip(): words.split() for name, words in listed.items()}
    found = {}
    for name in TABLES:
        words = of_type.get(name) or of_type.get(name.partition(" of ")[2]) or ["same"] * len(FORMATS)
        found |= {(name, format_): word for format_, word in zip(FORMATS, words, strict=True)}
    assert of_type.keys() <= TABLES.keys()
    return found


OUTCOME = outcomes()
PACKED = [name for name in TABLES if OUTCOME[name, "packed"] != "-"]


def values_of(table: pa.Table) -> list[tuple[str, str, str]]:
    """Name, type and values of each column, dictionaries looked up."""
    columns = []
    for field, column in zip(table.schema, table.columns, strict=True):
        type_ = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        columns.append((field.name, str(type_), shown(column)))
    return columns


def shown(column: pa.ChunkedArray) -> str:
    """All values as text. Of nanoseconds and views, Python and Arrow can do little else."""
    return str([str(value) for value in column])


def check_refusal(table: pa.Table, refusal: str) -> None:
    """It names the column, and says what is wrong with it."""
    if not table.num_columns:
        assert "no columns" in refusal
        return
    type_ = table.schema.field(table.num_columns - 1).type
    # In an Arrow stream dictionaries are looked up before the writer sees them.
    kinds = {str(type_)[:80], str(plain_type(type_))[:80]}
    assert "column c" in refusal or "column 'c'" in refusal or "two columns are named 'c'" in refusal, refusal
    assert any(reason in refusal for reason in (*kinds, "two columns are named", "own name", "struct")), refusal


def without_nan(table: pa.Table) -> pa.Table:
    """The same table with null for NaN and infinities."""

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(item) for item in value]
        return value if math.isfinite(value) else None

    column = pa.array([plain(value) for value in table["c"].to_pylist()], table.schema.field("c").type)
    return table.set_column(table.schema.get_field_index("c"), "c", column)


def plain_type(type_: pa.DataType) -> pa.DataType:
    """The type of the values of a dictionary, of runs, or of an extension."""
    if isinstance(type_, pa.BaseExtensionType):
        return plain_type(type_.storage_type)
    encoded = pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_)
    return plain_type(type_.value_type) if encoded else type_


def read_as_text(board: BoardServer, table: pa.Table, path: str) -> pa.Table:
    """The rows of a text file, by the types of `table` where a schema can name them."""
    file = {"type": "device.file", "device": "demo", "path": path, "on_error": "fail"}
    schema = {field.name: str(plain_type(field.type)) for field in table.schema}
    got = board.get(**file, schema=schema, columns=list(schema))
    if got.error is not None:  # a type that no schema can name
        got = board.get(**file)
    assert got.error is None, got.error
    return got.table


@pytest.mark.parametrize("name", TABLES)
def test_a_table_comes_back_or_is_refused(board: BoardServer, name: str) -> None:
    table = TABLES[name]
    for format_ in ("arrow", "csv", "jsonl"):
        path = f"/t.{format_}"
        (board.folder / path[1:]).write_bytes(BEFORE)
        put = board.put(table, {"type": "device.file", "device": "demo", "path": path})
        if OUTCOME[name, format_] == "refused":
            assert isinstance(put.error, pa.ArrowInvalid), (format_, put.error)
            check_refusal(table, str(put.error))
            assert (board.folder / path[1:]).read_bytes() == BEFORE
            continue
        assert put.error is None, (format_, put.error)
        assert (put.last["done"], put.last["rows"]) == (True, table.num_rows)
        check_file(board, table if OUTCOME[name, format_] == "same" else without_nan(table), path, format_)
    if name in PACKED:
        check_packed(board, name)


def code_of(type_: pa.DataType) -> str:
    """The `struct` code of a field that holds such values."""
    if pa.types.is_boolean(type_):
        return "?"
    if pa.types.is_floating(type_):
        return "d"
    if pa.types.is_temporal(type_) and not pa.types.is_interval(type_):
        return "i" if type_.bit_width == 32 else "q"
    if pa.types.is_integer(type_):
        code = "bhiq"[type_.bit_width.bit_length() - 4]
        return code.upper() if pa.types.is_unsigned_integer(type_) else code
    return "60s"


def check_packed(board: BoardServer, name: str) -> None:
    """By the type of the column; what has no null and a name of its own can be packed."""
    table = TABLES[name]
    # Not by a filter, which pyarrow has not for all types.
    rows = [
        chunk.slice(row, 1)
        for chunk in table["c"].chunks
        for row in range(len(chunk))
        if chunk[row].as_py() is not None
    ]
    column = pa.chunked_array(rows, table["c"].type)
    table = pa.table({"c": column})
    plain = plain_type(column.type)
    request = {"type": "device.file", "device": "demo", "path": "/p.bin", "format": "packed", "columns": ["c"]}
    request["record"] = f"<{code_of(plain)}"
    (board.folder / "p.bin").write_bytes(BEFORE)
    put = board.put(table, request)
    if OUTCOME[name, "packed"] == "refused":
        assert isinstance(put.error, pa.ArrowInvalid), put.error
        assert "column c: " in str(put.error) or "column 'c'" in str(put.error)
        assert (board.folder / "p.bin").read_bytes() == BEFORE
        return
    assert put.error is None, put.error
    got = board.get(**request, schema={"c": "string" if code_of(plain) == "60s" else str(plain)})
    if got.error is not None:  # a type that no schema can name: as the record has it
        got = board.get(**request)
    assert got.error is None, got.error
    if isinstance(column.type, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks])
    back = got.table["c"]
    with contextlib.suppress(pa.ArrowException):
        back = back.cast(plain)
    assert shown(back) == shown(column)


def check_file(board: BoardServer, table: pa.Table, path: str, format_: str) -> None:
    if format_ == "arrow":
        assert values_of(board.table(type="device.file", device="demo", path=path)) == values_of(table)
        return
    back = read_as_text(board, table, path)
    if format_ == "jsonl" and not table.num_rows:
        assert back.num_rows == 0  # and nothing names the columns
        return
    assert back.schema.names == table.schema.names
    for name, column in zip(table.schema.names, table.columns, strict=True):
        if isinstance(column.type, pa.BaseExtensionType):
            column = pa.chunked_array([chunk.storage for chunk in column.chunks])
        there = back[name]
        with contextlib.suppress(pa.ArrowException):  # of integers a decimal, of a list a view: alike as text
            there = there.cast(plain_type(column.type))
        assert shown(there) == shown(column)
