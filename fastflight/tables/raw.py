"""Raw bytes as rows: `offset: int64, data: binary`, one row per `ROW_BYTES` of the file, the last one shorter.

Writing joins the `data` of the rows; with an `offset` column the rows must follow each other without gaps. Reader and
writer begin at the layout's `offset`, so that the rows of a part of a file carry their position in the whole file.
"""

from __future__ import annotations

import pyarrow as pa

from fastflight.errors import DataError, RequestError
from fastflight.tables.codec import Layout, RowWriter
from fastflight.tables.schemas import conform, project
from fastflight.tables.summary import ReadSummary

# Rows are cut at multiples of this, however the bytes arrive. A line at 115200 baud transfers one row in 1.4 s.
ROW_BYTES = 16 * 1024
SCHEMA = pa.schema([("offset", pa.int64()), ("data", pa.binary())])


class RawReader:
    """`RowReader` of raw bytes. It never rejects a row."""

    def __init__(self, layout: Layout) -> None:
        if layout.schema is not None:
            raise RequestError(
                "raw rows have a schema of their own", where="schema", hint="Leave it out, or name another format"
            )
        self.schema: pa.Schema | None = project(SCHEMA, layout.columns)
        self.summary = ReadSummary()
        self._pending = bytearray()
        self._offset = layout.offset

    def feed(self, data: bytes) -> list[pa.RecordBatch]:
        self._pending += data
        return self._take(len(self._pending) // ROW_BYTES * ROW_BYTES)

    def finish(self) -> list[pa.RecordBatch]:
        return self._take(len(self._pending))

    def _take(self, size: int) -> list[pa.RecordBatch]:
        if not size:
            return []
        starts = range(0, size, ROW_BYTES)
        rows = [bytes(self._pending[start : min(start + ROW_BYTES, size)]) for start in starts]
        offsets = [self._offset + start for start in starts]
        del self._pending[:size]
        self._offset += size
        batch = pa.record_batch([pa.array(offsets, pa.int64()), pa.array(rows, pa.binary())], schema=SCHEMA)
        return [batch.select(self.schema.names) if self.schema is not None else batch]


class RawWriter(RowWriter):
    """`RowWriter` of raw bytes."""

    def __init__(self, layout: Layout, schema: pa.Schema) -> None:
        field = schema.field("data") if "data" in schema.names else None
        if field is None or field.type not in (pa.binary(), pa.large_binary()):
            raise DataError("raw needs a column data of type binary", hint="Or write the table as csv, jsonl or arrow")
        if "offset" in schema.names and schema.field("offset").type != pa.int64():
            raise DataError(
                "the column offset is not int64", hint="Leave it out: the rows are written one after another"
            )
        self._schema = pa.schema([field for field in schema if field.name in SCHEMA.names])
        self._end = layout.offset

    def encode(self, batch: pa.RecordBatch) -> bytes:
        batch = conform(batch, self._schema)
        data = batch.column("data")
        if data.null_count:
            raise DataError("a row has no data", where="column data", hint="Leave such rows out")
        rows: list[bytes] = data.to_pylist()
        if "offset" in self._schema.names:
            expected = self._end
            for offset, row in zip(batch.column("offset").to_pylist(), rows, strict=True):
                if offset != expected:
                    raise DataError(
                        f"a row has offset {offset}, the rows before it end at {expected}",
                        where="column offset",
                        hint="Sort the rows and leave no gap, or leave the column out",
                    )
                expected += len(row)
        joined = b"".join(rows)
        self._end += len(joined)
        return joined
