"""Lines of live output as rows: each line is parsed by itself.

A `LineParser` takes whole lines from anywhere in a stream, and an explicit schema. It returns the rows of the lines
that hold a CSV row or a JSON object of that schema, and which lines they come from. CSV lines have the schema's columns
in its order, separated by commas. A header is not needed; a header line (a restarted board prints it again) is skipped,
as are blank lines. A quoted cell ends on its line: no line changes the meaning of another.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

import pyarrow as pa

from fastflight.tables.codec import Layout, Rejected
from fastflight.tables.csv import csv_reader
from fastflight.tables.jsonl import jsonl_reader
from fastflight.tables.schemas import schema_from_names
from fastflight.tables.writing import CsvWriter

LineFormat = Literal["csv", "jsonl"]

# Cells that are quoted whole, or do not begin with a quote.
_CELL = rb'(?:"(?:[^"]++|"")*+"|(?!")[^,]*+)'
_WHOLE_ROW = re.compile(_CELL + rb"(?:," + _CELL + rb")*+")


@dataclass(frozen=True, slots=True)
class Parsed:
    """The rows of some lines: `rows[i]` came from line `lines[i]`. `refused`: line and reason."""

    rows: pa.RecordBatch
    lines: list[int]
    refused: list[tuple[int, str]]


class LineParser:
    """Lines to rows of `schema`. `RequestError` for a schema that the format cannot hold."""

    def __init__(self, format: LineFormat, schema: Mapping[str, str]) -> None:
        self._csv = format == "csv"
        self.schema = schema_from_names(schema)
        layout = Layout(format, schema=schema)
        self._reader = csv_reader(layout) if self._csv else jsonl_reader(layout)
        # In place of the reader's own, which keeps the first few.
        self._refused = self._reader.rejected = _AllRejected()
        self._offset = 0
        self._header = b""
        if self._csv:
            header = CsvWriter(Layout("csv"), pa.schema([(name, pa.string()) for name in schema])).begin()
            self._header = header.strip()
            self._feed(header)

    def parse(self, lines: Sequence[bytes]) -> Parsed:
        """The rows of `lines`, which have no line feed within them."""
        refused: list[tuple[int, str]] = []
        taken = [index for index, line in enumerate(lines) if self._is_row(index, line, refused)]
        pieces = [lines[index].rstrip(b"\r\n") + b"\n" for index in taken]
        starts = list(accumulate((len(piece) for piece in pieces), initial=self._offset))
        batches = self._feed(b"".join(pieces))
        misfits = {bisect_right(starts, offset) - 1: reason for offset, reason in self._refused.take()}
        refused += [(taken[position], reason) for position, reason in misfits.items()]
        kept = [index for position, index in enumerate(taken) if position not in misfits]
        rows = pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], self.schema)
        return Parsed(rows, kept, sorted(refused))

    def _is_row(self, index: int, line: bytes, refused: list[tuple[int, str]]) -> bool:
        line = line.rstrip(b"\r\n")
        if not line.strip() or (self._csv and line == self._header):
            return False
        if self._csv and b'"' in line and not _WHOLE_ROW.fullmatch(line):
            refused.append((index, "a quote is not closed within the line, or text follows it"))
            return False
        return True

    def _feed(self, data: bytes) -> list[pa.RecordBatch]:
        self._offset += len(data)
        return self._reader.feed(data)


class _AllRejected(Rejected):
    """Keeps every rejected row until `take`."""

    def __init__(self) -> None:
        super().__init__()
        self._taken: list[tuple[int, str]] = []

    def add(self, offset: int, reason: str) -> None:
        self._taken.append((offset, reason))

    def take(self) -> list[tuple[int, str]]:
        taken, self._taken = self._taken, []
        return taken
