"""Turns columns into wider types, which the values of later rows have asked for."""

from __future__ import annotations

import pyarrow as pa

_INT64 = pa.int64()
# The caller knows that all values fit: that no whole number needs more digits than a double has, for example.
_WIDER = {
    (_INT64, pa.uint64()),
    (_INT64, pa.float64()),
    (pa.date32(), pa.timestamp("us")),
    (pa.date32(), pa.timestamp("ns")),
    (pa.timestamp("us"), pa.timestamp("ns")),
    (pa.timestamp("us", "UTC"), pa.timestamp("ns", "UTC")),
}


def can_widen(narrow: pa.Schema, wide: pa.Schema) -> bool:
    """Whether `widen` can turn batches of `narrow` into batches of `wide`."""
    return all(
        narrow.get_field_index(field.name) < 0 or _can_widen(narrow.field(field.name).type, field.type)
        for field in wide
    )


def _can_widen(narrow: pa.DataType, wide: pa.DataType) -> bool:
    if narrow == wide or pa.types.is_null(narrow) or (narrow, wide) in _WIDER:
        return True
    if pa.types.is_list(narrow) and pa.types.is_list(wide):
        return _can_widen(narrow.value_type, wide.value_type)
    if pa.types.is_struct(narrow) and pa.types.is_struct(wide):
        return can_widen(pa.schema(list(narrow)), pa.schema(list(wide))) and all(
            wide.get_field_index(field.name) >= 0 for field in narrow
        )
    return False


def widen(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return `batch` with the columns and types of `schema`. Columns that it does not have are null."""
    if batch.schema.equals(schema):
        return batch
    columns = []
    for field in schema:
        place = batch.schema.get_field_index(field.name)
        columns.append(pa.nulls(batch.num_rows, field.type) if place < 0 else _widen(batch.column(place), field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _widen(column: pa.Array, type_: pa.DataType) -> pa.Array:
    if pa.types.is_nested(type_) and column.type != type_:
        return pa.array(column.to_pylist(), type_)
    return column.cast(type_)
