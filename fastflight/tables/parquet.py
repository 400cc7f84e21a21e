"""Writes Parquet files in row groups of a few megabytes, whatever the size of the batches.

A file with a row group for each small batch would be large and slow to read.
"""

from __future__ import annotations

from io import RawIOBase
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from fastflight.errors import DataError

ROW_GROUP_BYTES = 8 * 1024 * 1024


class RowGroupWriter:
    """Writes batches to `sink`, which it does not close. Call `close` to complete the file."""

    def __init__(self, sink: IO[bytes] | RawIOBase, schema: pa.Schema) -> None:
        """`DataError` if Parquet cannot hold the columns of `schema`."""
        self._schema = schema.remove_metadata()
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        try:
            self._writer = pq.ParquetWriter(sink, self._schema)
        except pa.ArrowException as error:
            raise DataError(f"parquet cannot hold these columns: {error}", hint="Use arrow or jsonl") from error

    def write(self, batch: pa.RecordBatch) -> None:
        """Add a batch. The rows are written once `ROW_GROUP_BYTES` have been collected."""
        if not batch.num_rows:
            return
        self._batches.append(batch.replace_schema_metadata(None))
        self._bytes += batch.nbytes
        if self._bytes >= ROW_GROUP_BYTES:
            self._write_row_group()

    def close(self) -> None:
        """Write the remaining rows and the footer."""
        try:
            if self._batches:
                self._write_row_group()
        finally:
            self._writer.close()

    def _write_row_group(self) -> None:
        table = pa.Table.from_batches(self._batches, self._schema)
        self._batches, self._bytes = [], 0
        self._writer.write_table(table, row_group_size=table.num_rows)
