"""Bodies: rows of logs of one schema as bytes, with the log and the number of each row. No I/O.

A body of the tail is one Arrow record batch, without its schema, and has the rows of many logs. The other bodies are
Parquet files. Rows of one log stand together, in ascending order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq

from fastflight.errors import DataError
from fastflight.log.content import TIME_COLUMN, Codec
from fastflight.log.values import Columns

LOG_COLUMN = "fastflight.log"
SEQ_COLUMN = "fastflight.seq"
# Few enough rows that a small range is cheap to read.
GROUP_ROWS = 64 * 1024


class NewRows(NamedTuple):
    """Rows of a log to store, from the number `first` on: a batch, or columns of Python values."""

    log: int
    first: int
    rows: int
    content: pa.RecordBatch | Columns


def body_schema(schema: pa.Schema, log_type: pa.DataType, seq_type: pa.DataType) -> pa.Schema:
    """Return the schema of bodies with rows of `schema`."""
    keys = [pa.field(LOG_COLUMN, log_type, nullable=False), pa.field(SEQ_COLUMN, seq_type, nullable=False)]
    return pa.schema([*keys, *schema], schema.metadata)


class BodyCodec:
    """Converts rows of one schema to bodies and back."""

    def __init__(self, codec: Codec) -> None:
        self.content = codec
        self.schema = codec.schema
        self.message = codec.message
        self.time_index = codec.schema.get_field_index(TIME_COLUMN)
        self._variable = [i for i, field in enumerate(codec.schema) if _is_variable(field.type)]
        self._tail = Codec(body_schema(codec.schema, pa.int32(), pa.int64()))

    def size_of(self, columns: Columns) -> int:
        """Return about how many bytes columns have."""
        content = sum(len(value) for i in self._variable for value in columns[i] if value is not None)
        return content + 16 * len(columns) * len(columns[0])

    def join(self, rows: Sequence[NewRows]) -> pa.RecordBatch:
        """Return all `rows` as one batch, as a body of the tail has them."""
        logs = pa.array([each.log for each in rows for _ in range(each.rows)], pa.int32())
        numbers = pa.array([n for each in rows for n in range(each.first, each.first + each.rows)], pa.int64())
        columns = arrays_of(self.schema, [each.content for each in rows])
        return pa.RecordBatch.from_arrays([logs, numbers, *columns], schema=self._tail.schema)

    def encode(self, batch: pa.RecordBatch) -> memoryview:
        """Return a body of the tail with the rows of `join`."""
        return self._tail.encode(batch)

    def decode(self, data: bytes, crc: int, *, is_parquet: bool) -> pa.RecordBatch | None:
        """Return the rows in a body, with the columns of their logs and numbers; None if it is damaged."""
        if crc32(data) != crc:
            return None
        try:
            return self._read_parquet(data) if is_parquet else self._tail.decode(pa.py_buffer(data))
        except (pa.ArrowException, OSError, ValueError):
            return None

    def _read_parquet(self, data: bytes) -> pa.RecordBatch:
        table = pq.read_table(pa.BufferReader(data), use_threads=False)
        return one_batch(table.cast(body_schema(self.schema, pa.string(), pa.int64())))

    def to_parquet(self, name: str, rows: pa.RecordBatch) -> pa.Buffer:
        """Return a Parquet file with `rows` of `join`, all of the log with this name.

        `DataError` if Parquet does not support a column.
        """
        sink = pa.BufferOutputStream()
        named = pa.array([name] * rows.num_rows, pa.string())
        # The numbers without a sign, as SQL and requests have them.
        schema = body_schema(self.schema, pa.string(), pa.uint64())
        table = pa.Table.from_arrays([named, rows.column(1).cast(pa.uint64()), *rows.columns[2:]], schema=schema)
        try:
            pq.write_table(
                table, sink, row_group_size=GROUP_ROWS, compression="zstd", use_dictionary=True, write_statistics=True
            )
        except pa.ArrowException as error:
            raise DataError(f"parquet cannot hold these columns: {error}", hint="They stay as they are") from error
        return sink.getvalue()

    def rows(self, body: pa.RecordBatch, log: int | str, at: int, first: int, count: int) -> pa.RecordBatch | None:
        """Return `count` rows of a log from row `at` of a body on; None if other rows than those are there."""
        last = at + count - 1
        if not 0 <= at <= last < body.num_rows:
            return None
        logs, numbers = body.column(0), body.column(1)
        ends = (logs[at].as_py(), logs[last].as_py(), numbers[at].as_py(), numbers[last].as_py())
        if ends != (log, log, first, first + count - 1):
            return None
        columns = [body.column(i).slice(at, count) for i in range(2, body.num_columns)]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def arrays_of(schema: pa.Schema, contents: Sequence[pa.RecordBatch | Columns]) -> list[pa.Array]:
    """Return rows of `schema`, one after another, as one array for each field."""
    if not any(isinstance(each, pa.RecordBatch) for each in contents):
        return columns_of(schema, [chain.from_iterable(column) for column in zip(*contents, strict=True)])
    batches = [
        each
        if isinstance(each, pa.RecordBatch)
        else pa.RecordBatch.from_arrays(columns_of(schema, each), schema=schema)
        for each in contents
    ]
    return list(joined(batches, schema).columns)


def columns_of(schema: pa.Schema, columns: Iterable[Iterable[object]]) -> list[pa.Array]:
    """Return Python values as arrays of the types of `schema`."""
    return [pa.array(list(values), field.type) for values, field in zip(columns, schema, strict=True)]


def joined(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of several batches as one batch."""
    return batches[0] if len(batches) == 1 else one_batch(pa.Table.from_batches(batches, schema))


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """Return the rows of a table as one batch."""
    columns = [
        column.chunk(0)
        if column.num_chunks == 1
        else column.unify_dictionaries().combine_chunks()
        if pa.types.is_dictionary(column.type)
        else column.combine_chunks()
        for column in table.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)


def _is_variable(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_string(kind))
