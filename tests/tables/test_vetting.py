"""What is asked of a peer's schema and batches before anybody uses them. `tests/corpus/batches` has more of them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fastflight.errors import DataError
from fastflight.tables.bare import plain_type, plain_values
from fastflight.tables.ipc import MAX_BODY_BYTES
from fastflight.tables.schemas import MAX_COLUMNS
from fastflight.tables.vetting import MAX_DEPTH, vet_batch, vet_schema

LONG = "x" * 1_000_000
MANY = 100


def nested(depth: int) -> pa.DataType:
    type_ = pa.int8()
    for _ in range(depth - 1):
        type_ = pa.list_(type_)
    return type_


def batch(column: pa.Array) -> pa.RecordBatch:
    return pa.record_batch([column], schema=pa.schema([pa.field("v", column.type)]))


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (pa.schema([("v", pa.list_(pa.decimal128(5, 39)))]), r"values of decimal128\(5, 39\) cannot be written"),
        (pa.schema([("v", pa.decimal256(5, -77))]), "cannot be written. Give it a scale of -76 to 76"),
    ],
)
def test_a_schema_that_is_refused(schema: pa.Schema, says: str) -> None:
    with pytest.raises(DataError, match=says) as raised:
        vet_schema(schema, "here")
    assert raised.value.where == "here"


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([("zzzzz", pa.int8())]),
        pa.schema([("v", pa.list_(pa.struct([("zzzzz", pa.int8())])))]),
        pa.schema([("v", pa.timestamp("us", "zzzzz"))]),
    ],
)
def test_a_name_that_is_not_utf8_is_refused(schema: pa.Schema) -> None:
    vet_schema(schema, "here")
    wire = schema.serialize().to_pybytes().replace(b"zzzzz", b"zz\xff\xfez")
    with pytest.raises(DataError, match="the name of a column is not UTF-8"):
        vet_schema(pa.ipc.read_schema(pa.py_buffer(wire)), "here")


def test_the_largest_schemas_that_are_taken() -> None:
    vet_schema(pa.schema([(f"c{i}", pa.int8()) for i in range(MAX_COLUMNS)]), "here")
    vet_schema(pa.schema([("v", nested(MAX_DEPTH))]), "here")


@pytest.mark.parametrize(
    ("column", "says"),
    [
        (pa.array([bytes(MAX_BODY_BYTES + 1)]), f"more than {MAX_BODY_BYTES}: send smaller batches"),
        (
            pa.DictionaryArray.from_arrays(pa.array([0] * MANY, pa.int8()), pa.array([LONG], pa.string_view())),
            "written out",
        ),
    ],
    ids=["bytes", "views in a dictionary"],
)
def test_a_batch_that_is_refused(column: pa.Array, says: str) -> None:
    with pytest.raises(pa.ArrowInvalid, match=says):
        vet_batch(batch(column))


def test_what_stands_in_the_place_of_a_null_does_not_count() -> None:
    views = pa.py_buffer((2**31 - 1).to_bytes(4, "little") + bytes(12))
    column = pa.Array.from_buffers(pa.string_view(), 1, [pa.py_buffer(b"\0"), views])
    vet_batch(batch(column))


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
        (pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([7, None])), [7, 7, None]),
        (pa.ExtensionArray.from_storage(pa.bool8(), pa.array([5], pa.int8())), [5]),
        (pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16)], pa.binary(16))), [bytes(16)]),
    ],
    ids=["dictionary", "runs", "bool8", "uuid"],
)
def test_values_as_all_know_them(column: pa.Array, values: list[object]) -> None:
    vet_batch(batch(column))
    assert plain_values(column).to_pylist() == values
    assert plain_values(column).type == plain_type(column.type)
