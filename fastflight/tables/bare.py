"""Small batches and arrays made without pandas, and columns without encodings.

When Arrow first makes an array from Python values (`pa.array([1])`, `pa.scalar`, `from_pylist`, `empty_table`), it
imports pandas: 1.3 s of processor time, many seconds on a busy machine. Meanwhile a client's write would hold its
device, and an event loop would be blocked. Nothing in this module makes Arrow import pandas.
"""

from __future__ import annotations

import struct

import pyarrow as pa

# pyarrow cannot decode dictionaries or runs whose values are views; they are decoded as plain text or bytes instead.
_PLAIN = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


def empty(schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch without rows."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def one_number(value: int) -> pa.Array:
    """Return an array of one `int64`."""
    return pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(struct.pack("=q", value))])


def one_content(data: bytes) -> pa.Array:
    """Return an array of one `binary`, which shares the memory of `data`."""
    ends = pa.py_buffer(struct.pack("=2i", 0, len(data)))
    return pa.Array.from_buffers(pa.binary(), 1, [None, ends, pa.py_buffer(data)])


def plain_values(column: pa.Array) -> pa.Array:
    """Return a checked column in its plain type.

    Dictionaries and run-end encoding are decoded; an extension column becomes its storage.
    """
    type_ = column.type
    if isinstance(type_, pa.BaseExtensionType):
        return plain_values(column.storage)
    if pa.types.is_dictionary(type_):
        return plain_values(decoded(column))
    return plain_values(_decoded_runs(column)) if pa.types.is_run_end_encoded(type_) else column


def decoded(column: pa.DictionaryArray) -> pa.Array:
    """Return the decoded values of a dictionary column."""
    value_type = _PLAIN.get(column.type.value_type)
    if value_type is None:
        return column.dictionary_decode()
    values = pa.DictionaryArray.from_arrays(column.indices, column.dictionary.cast(value_type)).dictionary_decode()
    return values.cast(column.type.value_type)


def _decoded_runs(column: pa.RunEndEncodedArray) -> pa.Array:
    import pyarrow.compute as pc  # not at the top: commands load this module, and start without Arrow's functions

    value_type = _PLAIN.get(column.type.value_type)
    if value_type is None:
        return pc.run_end_decode(column)
    runs = pa.RunEndEncodedArray.from_arrays(column.run_ends, column.values.cast(value_type))
    return pc.run_end_decode(runs.slice(column.offset, len(column))).cast(column.type.value_type)


def plain_type(type_: pa.DataType) -> pa.DataType:
    """Return the type of the array that `plain_values` returns for a column of `type_`."""
    if isinstance(type_, pa.BaseExtensionType):
        return plain_type(type_.storage_type)
    encoded = pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_)
    return plain_type(type_.value_type) if encoded else type_
