"""Packed: records of one fixed size, described by a `struct` format and the names of its fields.

Reading: one row per record. `schema` casts a field to another type than its code implies: a uint32 of seconds to
`timestamp[s]`, the bytes of a `16s` to `string` (padding NULs removed). A record with a value that cannot be cast is
rejected, and so is an incomplete record at the end of the file.

Writing is the inverse. Packed has no nulls: null is a `DataError`, as is a value that its field cannot hold.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastflight.errors import DataError, RequestError, nearest
from fastflight.tables.bare import plain_values
from fastflight.tables.codec import Layout, read_in_runs
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
        self._dtype = self._record.dtype
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
        step = max(_BLOCK_BYTES // self._record.size, 1) * self._record.size
        whole = len(self._pending) // self._record.size * self._record.size
        for start in range(0, whole, step):
            batches += self._read(bytes(self._pending[start : min(start + step, whole)]), self._offset + start)
        del self._pending[:whole]
        self._offset += whole
        return batches

    def finish(self) -> list[pa.RecordBatch]:
        if self._pending:
            reason = f"the file ends after {len(self._pending)} of the {self._record.size} bytes of a record"
            self.summary.reject(self._offset, reason)
            self._pending.clear()
        return []

    def _read(self, data: bytes, offset: int) -> list[pa.RecordBatch]:
        values = np.frombuffer(data, self._dtype)
        columns = [_column(values[f"f{index}"], field) for index, field in enumerate(self._record.fields)]
        batch = pa.record_batch(columns, [field.name for field in self._record.fields])
        parts, failed = read_in_runs(batch.num_rows, lambda run: self._convert(batch[run]))
        for row in failed:
            reason = self._explain(batch.slice(row, 1)) if self.summary.wants_reason else "the record does not fit"
            self.summary.reject(offset + row * self._record.size, reason)
        return [pa.concat_batches(parts)] if len(parts) > 1 else parts

    def _convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [_cast(column, field.type) for column, field in zip(batch.columns, self._schema, strict=True)]
        return pa.record_batch(columns, schema=self._schema)

    def _explain(self, row: pa.RecordBatch) -> str:
        """Return the reason why this row cannot be converted."""
        for column, field in zip(row.columns, self._schema, strict=True):
            try:
                _cast(column, field.type)
            except pa.ArrowInvalid:
                return f"column {shorten(field.name)}: {shorten(column[0].as_py())} is not {field.type}"
        return "the record does not fit"


def _column(values: np.ndarray[Any, Any], field: Field) -> pa.Array:
    if field.code in "sc":
        fixed = pa.binary(field.dtype.itemsize)
        data = pa.py_buffer(np.ascontiguousarray(values).tobytes())
        return pa.Array.from_buffers(fixed, len(values), [None, data]).cast(pa.binary())
    if field.code == "?":
        return pa.array(values != 0)
    native = np.ascontiguousarray(values).astype(field.type.to_pandas_dtype(), copy=False)
    return pa.array(native, field.type)


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


class PackedWriter:
    """`RowWriter` of packed records. Fields are matched to columns by name; other columns are left out."""

    def __init__(self, layout: Layout, schema: pa.Schema) -> None:
        names = layout.columns if layout.columns is not None else tuple(layout.schema or schema.names)
        self._record = Record.parse(layout.record, names)
        for field in self._record.fields:
            if field.name not in schema.names:
                raise DataError(f"the table has no column {field.name!r}", hint=nearest(field.name, schema.names))
            self._values(pa.nulls(0, schema.field(field.name).type), field)
        self._schema = pa.schema([schema.field(field.name) for field in self._record.fields])

    def begin(self) -> bytes:
        return b""

    def encode(self, batch: pa.RecordBatch) -> bytes:
        batch = conform(batch, self._schema)
        records = np.zeros(batch.num_rows, self._record.dtype)
        for index, (column, field) in enumerate(zip(batch.columns, self._record.fields, strict=True)):
            records[f"f{index}"] = self._values(column, field)
        return records.tobytes()

    def finish(self) -> bytes:
        return b""

    def _values(self, column: pa.Array, field: Field) -> np.ndarray[Any, Any]:
        where = f"column {field.name}"
        column = plain_values(column)
        if column.null_count:
            raise DataError("a packed record can not hold null", where=where, hint="Fill or drop the nulls first")
        try:
            if field.code in "sc":
                return _fixed(column, field)
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
                narrow = values.astype(field.dtype)
            source = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
            if (np.isinf(narrow) & ~np.isinf(source)).any():
                raise DataError(f"a value is too large for {field.code!r}", where=where, hint="Use d in the record")
            return narrow
        return values


def _fixed(column: pa.Array, field: Field) -> np.ndarray[Any, Any]:
    width = field.dtype.itemsize
    rows: list[bytes] = column.cast(pa.binary()).to_pylist()
    for row in rows:
        if len(row) > width:
            raise DataError(
                f"{shorten(row)} is longer than {width} bytes",
                where=f"column {field.name}",
                hint="Shorten the values, or give the record a wider field",
            )
    return np.frombuffer(b"".join(row.ljust(width, b"\0") for row in rows), f"V{width}")
