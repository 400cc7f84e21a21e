"""A table for people: column names and types, the first and the last rows, or only the first, and their number."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import pyarrow as pa
from rich.console import Group
from rich.table import Table
from rich.text import Text

from fastflight.cli import drawing, screen
from fastflight.client import RowStream
from fastflight.client.stream import warn_if_incomplete
from fastflight.errors import quantity
from fastflight.service.requests import FILE_SUMMARY

FIRST_ROWS = 10
LAST_ROWS = 5
# The most rows of a batch, if only the first rows of a file are read.
HEAD_BATCH_ROWS = 4096
# Longer cells, such as those of `raw` files, would push the other columns off the screen.
MAX_CELL_CHARACTERS = 48
# Stands for a nested value (a list, a struct) with a time that Python cannot represent.
OUT_OF_RANGE = "<a time beyond the years 1 to 9999>"
# Errors of a time that Python cannot represent. pytz, which Arrow uses where it is installed, raises `KeyError` for an
# unknown time zone.
TIME_ERRORS = (OverflowError, ValueError, KeyError)


def first_rows(stream: RowStream, count: int) -> Iterator[pa.RecordBatch]:
    """Yield the first `count` rows of a stream, then cancel it: the device stops sending.

    The warning that follows has only what the server knew of the file before its first row.
    """
    for batch in stream:
        yield batch.slice(0, count)
        count -= batch.num_rows
        if count <= 0:
            stream.cancel()
            warn_if_incomplete(json.loads((stream.schema.metadata or {}).get(FILE_SUMMARY, b"{}")))
            return


def preview_of(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], head: int | None = None, first: int = FIRST_ROWS
) -> Group:
    """Return the table of all batches. `head` and `first` are as in `Preview`."""
    preview = Preview(schema, head, first)
    for batch in batches:
        preview.add(batch)
    return preview.table()


class Preview:
    """Keeps the first and the last rows of a stream of batches, so its size does not grow with the stream.

    `first` says how many of the first rows. With `head`, keeps all rows: the stream has only the first `head` rows of a
    file.
    """

    def __init__(self, schema: pa.Schema, head: int | None = None, first: int = FIRST_ROWS) -> None:
        self._schema = schema
        self._head = head
        self._count = head or first
        self._first: list[list[str]] = []
        self._last: deque[list[str]] = deque(maxlen=LAST_ROWS)
        self._rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        head = min(self._count - len(self._first), batch.num_rows)
        self._first += _cells(batch.slice(0, head))
        start = max(head, batch.num_rows - LAST_ROWS)
        self._last.extend(_cells(batch.slice(start)))
        self._rows += batch.num_rows

    def table(self) -> Group:
        grid = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
        for field in self._schema:
            numeric = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
            type_ = drawing.cell(str(field.type), "dim not bold")
            heading = drawing.cell(field.name).append("\n").append_text(type_)
            grid.add_column(heading, justify="right" if numeric else "left", no_wrap=True)
        for row in self._first:
            grid.add_row(*map(drawing.cell, row))
        if self._rows > len(self._first) + len(self._last):
            grid.add_row(*(Text("...", style="dim") for _ in self._schema))
        for row in self._last:
            grid.add_row(*map(drawing.cell, row))
        rows = quantity(self._rows, "row")
        if self._rows == self._head:
            rows = f"the first {rows.removeprefix('1 ')}"
        return Group(grid, Text(f"{rows}, {quantity(len(self._schema), 'column')}", style="dim"))


def _cells(batch: pa.RecordBatch) -> list[list[str]]:
    return [[_cell(value) for value in row.values()] for row in rows_of(batch)]


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bytes):
        text = value.decode("utf-8", "backslashreplace")
    elif isinstance(value, datetime):
        text = value.isoformat(" ")
    else:
        text = str(value)
    text = screen.printable(text)
    return text if len(text) <= MAX_CELL_CHARACTERS else text[: MAX_CELL_CHARACTERS - 3] + "..."


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return a dictionary for each row.

    Times that Python cannot represent are text: Python has only the years 1 to 9999, Arrow has more, and a device's
    file may name a time zone that this computer does not know.
    """
    try:
        rows: list[dict[str, Any]] = batch.to_pylist()
    except TIME_ERRORS:
        columns = [[_value(each) for each in column] for column in batch.columns]
        return [dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]
    return rows


def _value(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except TIME_ERRORS:
        if not pa.types.is_temporal(scalar.type):
            return OUT_OF_RANGE
        if pa.types.is_timestamp(scalar.type) and scalar.type.tz is not None:
            scalar = scalar.cast(pa.timestamp(scalar.type.unit, "UTC"))  # its time zone may be unknown here
        return str(scalar.cast(pa.string()))
