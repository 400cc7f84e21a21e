"""Writes Parquet files in row groups of a few megabytes, whatever the size of the batches.

A file with a row group for each small batch would be large and slow to read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import RawIOBase
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from fastflight.errors import DataError
from fastflight.tables.summary import combined

# The key of the source's summary (`ReadSummary.as_dict`) in the metadata of a Parquet file.
SUMMARY_KEY = "fastflight.summary"
ROW_GROUP_BYTES = 8 * 1024 * 1024


class RowGroupWriter:
    """Writes batches to `sink`, which it does not close. Call `close` to complete the file.

    A row group has at most `ROW_GROUP_BYTES` bytes, unless a single batch has more.
    """

    def __init__(self, sink: IO[bytes] | RawIOBase, schema: pa.Schema) -> None:
        """`DataError` if Parquet cannot hold the columns of `schema`."""
        self._schema = schema
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        try:
            self._writer = pq.ParquetWriter(sink, schema)
        except pa.ArrowException as error:
            raise DataError(f"parquet cannot hold these columns: {error}", hint="Use arrow or jsonl") from error

    def write(self, batch: pa.RecordBatch) -> None:
        """Add a batch. A row group is written once it is full."""
        if self._bytes + batch.nbytes > ROW_GROUP_BYTES:
            self._end_row_group()
        if batch.num_rows:
            self._batches.append(batch)
            self._bytes += batch.nbytes

    def _end_row_group(self) -> None:
        if not self._batches:
            return
        table = pa.Table.from_batches(self._batches, self._schema)
        self._batches, self._bytes = [], 0
        self._writer.write_table(table, row_group_size=table.num_rows)

    def add_summary(self, summary: Mapping[str, Any]) -> None:
        """Add the source's summary as JSON, unless there is nothing in it but the number of rows."""
        if entries := combined([summary]):
            self.add_metadata({SUMMARY_KEY: json.dumps(entries)})

    def add_metadata(self, metadata: Mapping[str, str]) -> None:
        """Add keys to the metadata of the file: `pyarrow.parquet.read_metadata(file).metadata` has them."""
        self._writer.add_key_value_metadata(dict(metadata))

    def close(self) -> None:
        """Write the rows that wait, and the footer."""
        try:
            self._end_row_group()
        finally:
            self._writer.close()
