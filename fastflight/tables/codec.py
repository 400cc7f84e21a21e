"""The interfaces of every codec: rows from bytes, and bytes from rows.

A `RowReader` takes the bytes of one file in pieces of any size and returns the rows that are complete so far. How the
bytes are split never changes the rows. `finish()` returns the rest. Whatever is lost is counted in `summary`, or is a
`DataError`, as `on_error` says.

A `RowWriter` is the inverse: call `begin()`, `encode()` for each batch, then `finish()`. Their bytes joined are the
file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import pyarrow as pa

from fastflight.tables.shapes import Shape
from fastflight.tables.summary import OnError, ReadSummary


@dataclass(frozen=True, slots=True)
class TextOptions:
    """How a text file is written. `auto` and None: the reader finds out.

    `header`: `none`, or the number of the line that names the columns, 1 for the first. `delimiter`: one character
    between cells; a blank stands for any number of blanks. `decimal`: `.` or `,`. `skip_rows`: lines to skip at the
    start. `comment`: the character that begins a line to skip. `encoding`: a name that Python knows, such as `cp1252`.
    `null_values`: cells that mean null in columns of every type.
    """

    header: Literal["auto", "none"] | int = "auto"
    delimiter: str | None = None
    decimal: Literal[".", ","] | None = None
    skip_rows: int = 0
    comment: str | None = None
    encoding: str | None = None
    null_values: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """The format of a file, and which columns to read or write.

    `format`: `csv`, `jsonl`, `packed`, `arrow` or `raw`. `schema`: column name to Arrow type name, in order; None means
    inferred (csv, jsonl), given by the file (arrow), or derived from `record` (packed). `infer`: what decides the types
    of csv and jsonl without a schema: the whole `file`, or a `sample` of its first 64 KiB, which may end
    after the first `sample_rows` rows. `text`: how a csv or jsonl
    file is written. `columns`: the columns to keep, in this order; for `packed`, the names of the record's fields
    instead. `record`: the `struct` format of one `packed` record. `on_error`: what to do with what the summary would
    tell: count it (`skip`), raise `DataError` for a row or value that would be lost (`lossless`), or for anything
    (`fail`). `offset`: where in the file the bytes begin, for `raw` rows, which carry it. `bytes_as`: what the writers
    of `csv` and `jsonl` do with columns of bytes, which a reader would take for text. `kinds`: the values of the same
    columns in other files, for a csv or jsonl file that is read as a whole: its rows get the columns and types of all
    these files.
    """

    format: str
    schema: Mapping[str, str] | None = None
    columns: tuple[str, ...] | None = None
    record: str | None = None
    on_error: OnError = "skip"
    offset: int = 0
    bytes_as: Literal["refuse", "base64"] = "refuse"
    infer: Literal["file", "sample"] = "file"
    sample_rows: int | None = None
    text: TextOptions = TextOptions()
    kinds: Mapping[str, Shape] | None = None


class RowReader(Protocol):
    """Rows of one file, read incrementally."""

    @property
    def schema(self) -> pa.Schema | None:
        """The schema of every batch; None until it is known, at the latest after `finish()`."""

    @property
    def summary(self) -> ReadSummary:
        """What is to be told of the file so far."""

    def feed(self, data: bytes) -> list[pa.RecordBatch]:
        """Read the next bytes. Returns the rows that they complete, none while the schema is not known."""

    def finish(self) -> list[pa.RecordBatch]:
        """End the file. Returns the remaining rows."""


class RowWriter(Protocol):
    """Bytes of one file, written incrementally."""

    def begin(self) -> bytes:
        """Return the bytes before the first row; by default, there are none."""
        return b""

    def encode(self, batch: pa.RecordBatch) -> bytes:
        """Return the bytes of these rows."""

    def finish(self) -> bytes:
        """Return the bytes after the last row; by default, there are none."""
        return b""
