"""The file formats by name: a reader and a writer for each, and the endings of file names that stand for them."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from fastflight.errors import RequestError, nearest
from fastflight.tables.arrow import ArrowReader, ArrowWriter
from fastflight.tables.codec import Layout, RowReader, RowWriter
from fastflight.tables.packed import PackedReader, PackedWriter
from fastflight.tables.raw import RawReader, RawWriter
from fastflight.tables.text import TextReader
from fastflight.tables.writing import CsvWriter, JsonlWriter

_CODECS: dict[str, tuple[Callable[[Layout], RowReader], Callable[[Layout, pa.Schema], RowWriter]]] = {
    "csv": (TextReader, CsvWriter),
    "jsonl": (TextReader, JsonlWriter),
    "packed": (PackedReader, PackedWriter),
    "arrow": (ArrowReader, ArrowWriter),
    "raw": (RawReader, RawWriter),
}


def open_reader(layout: Layout) -> RowReader:
    """Return a reader for one file. `RequestError` if the layout is not possible."""
    return _codec(layout)[0](layout)


def needs_whole_file(layout: Layout) -> bool:
    """Whether the types of the columns are known only once all bytes of the file were read: then use `WholeFile`."""
    return layout.format in ("csv", "jsonl") and layout.schema is None and layout.infer == "file"


def open_writer(layout: Layout, schema: pa.Schema) -> RowWriter:
    """Return a writer for batches of `schema`. `RequestError` or `DataError` if the format cannot hold them."""
    return _codec(layout)[1](layout, schema)


def _codec(layout: Layout) -> tuple[Callable[[Layout], RowReader], Callable[[Layout, pa.Schema], RowWriter]]:
    try:
        return _CODECS[layout.format]
    except KeyError:
        raise RequestError(
            f"no format is named {layout.format!r}", where="format", hint=nearest(layout.format, _CODECS)
        ) from None
