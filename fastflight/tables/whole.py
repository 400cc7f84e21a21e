"""Complete CSV and JSON lines files without a schema: read once to find the columns, and again for the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from fastflight.tables.codec import Layout
from fastflight.tables.csv import csv_reader
from fastflight.tables.jsonl import jsonl_reader
from fastflight.tables.text import TextReader


class TextFile:
    """`WholeFile` of csv and jsonl."""

    def __init__(self, layout: Layout, read: Callable[[], Iterator[bytes]]) -> None:
        self._layout = layout
        self._read = read
        reader = self._reader()
        self.summary = reader.summary
        for batch in self._rows(reader):
            self.summary.rows += batch.num_rows
        self.schema: pa.Schema = reader.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        return self._rows(self._reader())

    def _reader(self) -> TextReader:
        return (csv_reader if self._layout.format == "csv" else jsonl_reader)(self._layout)

    def _rows(self, reader: TextReader) -> Iterator[pa.RecordBatch]:
        for data in self._read():
            yield from reader.feed(data)
        yield from reader.finish()
