"""Packed: records of one fixed size, described by a `struct` format and the names of its fields.

Reading: one row per record. `schema` casts a field to another type than its code implies: a uint32 of seconds to
`timestamp[s]`, the bytes of a `16s` to `string` (padding NULs removed). A record with a value that cannot be cast is
rejected, and so is an incomplete record at the end of the file.

Writing is the inverse. Packed has no nulls: null is a `DataError`, as is a value that its field cannot hold.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastflight.errors import DataError, RequestError, nearest
from fastflight.tables.bare import plain_values
from fastflight.tables.casting import cast_each
from fastflight.tables.codec import Layout, RowWriter
from fastflight.tables.record import Field, Record
from fastflight.tables.schemas import conform, schema_from_names
from fastflight.tables.summary import ReadSummary, shorten

# The size of the records that become one batch. It bounds the memory for copies when a feed is large.
_BLOCK_BYTES = 1024 * 1024


def _record(layout: Layout) -> Record:
    names = layout.columns
    if names is None and layout.schema is not None:
        names = tuple(layout.schema)
    return Record.parse(layout.record, names)


class PackedReader:
    """`RowReader` of packed records."""

    def __init__(self, layout: Layout) -> None:
        self._record = _record(layout)
        self.summary = ReadSummary(layout.on_error)
        self._pending = bytearray()
        self._offset = 0
        self._schema = self._schema_of(layout)

    @property
    def schema(self) -> pa.Schema | None:
        return self._schema

    def _schema_of(self, layout: Layout) -> pa.Schema:
        wanted = schema_from_names(layout.schema or {})
        names = [field.name for field in self._record.fields]
        for name in wanted.names:
            if name not in names:
                raise RequestError(f"no field is named {name!r}", where=f"schema.{name}", hint=nearest(name, names))
        types = []
        for field in self._record.fields:
            target = wanted.field(field.name).type if field.name in wanted.names else field.type
            try:
                _cast(pa.array([], field.type), target)
            except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
                raise RequestError(
                    f"{field.code!r} in the record can not be read as {target}",
                    where=f"schema.{field.name}",
                    hint=f"Leave it out to get {field.type}",
                ) from None
            types.append((field.name, target))
        return pa.schema(types)

    def feed(self, data: bytes) -> list[pa.RecordBatch]:
        self._pending += data
        batches = []
        size = self._record.dtype.itemsize
        step = max(_BLOCK_BYTES // size, 1) * size
        whole = len(self._pending) // size * size
        for start in range(0, whole, step):
            batches += self._read(bytes(self._pending[start : min(start + step, whole)]), self._offset + start)
        del self._pending[:whole]
        self._offset += whole
        return batches

    def finish(self) -> list[pa.RecordBatch]:
        if self._pending:
            reason = f"the file ends after {len(self._pending)} of the {self._record.dtype.itemsize} bytes of a record"
            self.summary.reject(self._offset, reason)
            self._pending.clear()
        return []

    def _read(self, data: bytes, offset: int) -> list[pa.RecordBatch]:
        values = np.frombuffer(data, self._record.dtype)
        raw = [_column(values[field.key], field) for field in self._record.fields]
        columns = [cast_each(column, field.type, _cast) for column, field in zip(raw, self._schema, strict=True)]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        if not any(column.null_count for column in columns):
            return [batch]
        fits = reduce(pc.and_, map(pc.is_valid, columns))
        for row in pc.indices_nonzero(pc.invert(fits)).to_pylist():
            place = next(place for place, column in enumerate(columns) if not column[row].is_valid)
            field, value = self._schema.field(place), raw[place][row].as_py()
            reason = f"column {shorten(field.name)}: {shorten(value)} is not {field.type}"
            self.summary.reject(offset + row * self._record.dtype.itemsize, reason)
        batch = batch.filter(fits)
        return [batch] if batch.num_rows else []


def _column(values: np.ndarray[Any, Any], field: Field) -> pa.Array:
    if field.code in "sc":
        fixed = pa.binary(values.dtype.itemsize)
        return pa.Array.from_buffers(fixed, len(values), [None, pa.py_buffer(values.tobytes())]).cast(pa.binary())
    if field.code == "?":
        return pa.array(values != 0)
    return pa.array(np.ascontiguousarray(values).astype(field.type.to_pandas_dtype(), copy=False), field.type)


def _cast(column: pa.Array, target: pa.DataType) -> pa.Array:
    if column.type == target:
        return column
    if pa.types.is_temporal(target) and pa.types.is_integer(column.type):
        width = pa.int32() if target.bit_width == 32 else pa.int64()
        times = column.cast(width).cast(target)
        times.validate(full=True)  # the cast accepts any number as a time of day
        return times
    if pa.types.is_binary(column.type) and (pa.types.is_string(target) or pa.types.is_large_string(target)):
        return pc.utf8_rtrim(column.cast(target), characters="\0")
    return column.cast(target)


class PackedWriter(RowWriter):
    """`RowWriter` of packed records. Fields are matched to columns by name; other columns are left out."""

    def __init__(self, layout: Layout, schema: pa.Schema) -> None:
        names = layout.columns if layout.columns is not None else tuple(layout.schema or schema.names)
        self._record = Record.parse(layout.record, names)
        for field in self._record.fields:
            if field.name not in schema.names:
                raise DataError(f"the table has no column {field.name!r}", hint=nearest(field.name, schema.names))
            self._values(pa.nulls(0, schema.field(field.name).type), field)
        self._schema = pa.schema([schema.field(field.name) for field in self._record.fields])

    def encode(self, batch: pa.RecordBatch) -> bytes:
        batch = conform(batch, self._schema)
        records = np.zeros(batch.num_rows, self._record.dtype)
        for column, field in zip(batch.columns, self._record.fields, strict=True):
            records[field.key] = self._values(column, field)
        return records.tobytes()

    def _values(self, column: pa.Array, field: Field) -> np.ndarray[Any, Any]:
        where = f"column {field.name}"
        column = plain_values(column)
        if column.null_count:
            raise DataError("a packed record can not hold null", where=where, hint="Fill or drop the nulls first")
        try:
            if field.code in "sc":
                return _fixed(column, field, self._record.dtype[field.key])
            if pa.types.is_temporal(column.type):
                column = column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64())
            values: np.ndarray[Any, Any] = column.cast(field.type).to_numpy(zero_copy_only=False)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise DataError(
                f"{column.type} does not fit {field.code!r} of the record: {str(error)[:120]}",
                where=where,
                hint=f"Cast the column to {field.type} first, or give the record a wider field",
            ) from None
        if field.code in "ef":
            with np.errstate(over="ignore"):
                narrow = values.astype(self._record.dtype[field.key])
            source = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
            if (np.isinf(narrow) & ~np.isinf(source)).any():
                raise DataError(f"a value is too large for {field.code!r}", where=where, hint="Use d in the record")
            return narrow
        return values


def _fixed(column: pa.Array, field: Field, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    width = dtype.itemsize
    rows: list[bytes] = column.cast(pa.binary()).to_pylist()
    for row in rows:
        if len(row) > width:
            raise DataError(
                f"{shorten(row)} is longer than {width} bytes",
                where=f"column {field.name}",
                hint="Shorten the values, or give the record a wider field",
            )
    return np.frombuffer(b"".join(row.ljust(width, b"\0") for row in rows), dtype)
