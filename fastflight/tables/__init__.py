"""File formats: a reader and a writer of rows for each of csv, jsonl, packed, arrow and raw.

reader = open_reader(Layout("csv"))
for piece in pieces:
    batches = reader.feed(piece)      # the rows that are complete so far
batches = reader.finish()             # the rest; `reader.rejected` has the bad rows

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
    from fastflight.tables.codec import Layout, Rejected, RejectedRow, RowReader, RowWriter
    from fastflight.tables.endings import PARQUET, copied_as_is, format_of, is_table
    from fastflight.tables.formats import open_reader, open_writer
    from fastflight.tables.lines import LineParser
    from fastflight.tables.schemas import schema_from_names

__all__ = [
    "PARQUET",
    "Batcher",
    "Layout",
    "LineParser",
    "Rejected",
    "RejectedRow",
    "RowReader",
    "RowWriter",
    "copied_as_is",
    "format_of",
    "is_table",
    "open_reader",
    "open_writer",
    "schema_from_names",
]

__getattr__: Callable[[str], Any] = exports(
    __name__,
    {
        "batching": ("Batcher",),
        "codec": ("Layout", "Rejected", "RejectedRow", "RowReader", "RowWriter"),
        "endings": ("PARQUET", "copied_as_is", "format_of", "is_table"),
        "formats": ("open_reader", "open_writer"),
        "lines": ("LineParser",),
        "schemas": ("schema_from_names",),
    },
)
