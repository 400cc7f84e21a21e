"""Batches made of buffers, not of Python's values, for which Arrow imports pandas.

Where Arrow first makes an array of Python's values (`pa.array([1])`, `pa.scalar`, `from_pylist`, `empty_table`) it
looks for pandas, and loads it: 1.3 s of processor time, many seconds on a busy computer. In a client's write the
device is held meanwhile, and on an event loop nothing else runs. What is made here never asks.
"""

from __future__ import annotations

import struct

import pyarrow as pa


def empty(schema: pa.Schema) -> pa.RecordBatch:
    """A batch without rows."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def one_number(value: int) -> pa.Array:
    """An array of one `int64`."""
    return pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(struct.pack("=q", value))])


def one_content(data: bytes) -> pa.Array:
    """An array of one `binary`, which shares the memory of `data`."""
    return _one(data, pa.binary())


def one_text(text: str) -> pa.Array:
    """An array of one `string`."""
    return _one(text.encode(), pa.string())


def _one(data: bytes, type_: pa.DataType) -> pa.Array:
    ends = pa.py_buffer(struct.pack("=2i", 0, len(data)))
    return pa.Array.from_buffers(type_, 1, [None, ends, pa.py_buffer(data)])
