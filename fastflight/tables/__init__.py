"""File formats: a reader and a writer of rows for each of csv, jsonl, packed, arrow and raw.

reader = open_reader(Layout("csv"))
for piece in pieces:
    batches = reader.feed(piece)      # the rows that are complete so far
batches = reader.finish()             # the rest; `reader.summary` tells what is lost

writer = open_writer(Layout("csv"), schema)
data = writer.begin() + writer.encode(batch) + writer.finish()

All names are imported on first use: a command that reads no table starts without the codecs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastflight.lazy import exports

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastflight.tables.batching import Batcher
    from fastflight.tables.codec import Layout, RowReader, RowWriter, TextOptions
    from fastflight.tables.endings import PARQUET, copied_as_is, format_of, is_table
    from fastflight.tables.formats import needs_whole_file, open_reader, open_writer
    from fastflight.tables.lines import LineParser
    from fastflight.tables.schemas import schema_from_names
    from fastflight.tables.summary import ReadSummary, RejectedRow
    from fastflight.tables.text import WholeFile

__all__ = [
    "PARQUET",
    "Batcher",
    "Layout",
    "LineParser",
    "ReadSummary",
    "RejectedRow",
    "RowReader",
    "RowWriter",
    "TextOptions",
    "WholeFile",
    "copied_as_is",
    "format_of",
    "is_table",
    "needs_whole_file",
    "open_reader",
    "open_writer",
    "schema_from_names",
]

__getattr__: Callable[[str], Any] = exports(
    __name__,
    {
        "batching": ("Batcher",),
        "codec": ("Layout", "RowReader", "RowWriter", "TextOptions"),
        "endings": ("PARQUET", "copied_as_is", "format_of", "is_table"),
        "formats": ("needs_whole_file", "open_reader", "open_writer"),
        "lines": ("LineParser",),
        "schemas": ("schema_from_names",),
        "summary": ("ReadSummary", "RejectedRow"),
        "text": ("WholeFile",),
    },
)
