"""Parses lines of live output into rows, each line by itself.

A `LineParser` has an explicit schema and takes whole lines from anywhere in a stream. It returns the rows of the lines
that hold a CSV row or a JSON object of that schema, and says which lines they come from. CSV lines have the columns of
the schema in its order, separated by commas. A header is not needed; header lines are skipped (a restarted board prints
one again), and so are blank lines. A quoted cell must end on its line, so that no line changes the meaning of another.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

import pyarrow as pa

from fastflight.tables.codec import Layout
from fastflight.tables.csv import csv_reader
from fastflight.tables.jsonl import jsonl_reader
from fastflight.tables.schemas import schema_from_names
from fastflight.tables.summary import ReadSummary
from fastflight.tables.writing import CsvWriter

LineFormat = Literal["csv", "jsonl"]

# Cells that are quoted whole, or do not begin with a quote.
_CELL = rb'(?:"(?:[^"]++|"")*+"|(?!")[^,]*+)'
_WHOLE_ROW = re.compile(_CELL + rb"(?:," + _CELL + rb")*+")


@dataclass(frozen=True, slots=True)
class Parsed:
    """The rows of some lines. Row `i` comes from line `lines[i]`. `refused` holds the other lines, with a reason each.

    Lines are given by their index. Blank lines and headers are in neither list.
    """

    rows: pa.RecordBatch
    lines: list[int]
    refused: list[tuple[int, str]]


class LineParser:
    """Parses lines into rows of `schema`. `RequestError` for a schema that the format cannot hold."""

    def __init__(self, format: LineFormat, schema: Mapping[str, str]) -> None:
        self._csv = format == "csv"
        self.schema = schema_from_names(schema)
        layout = Layout(format, schema=schema)
        self._reader = csv_reader(layout) if self._csv else jsonl_reader(layout)
        # Replaces the reader's summary, which holds only the first few rows.
        self._refused = self._reader.summary = _AllRejected()
        self._offset = 0
        self._header = b""
        if self._csv:
            header = CsvWriter(Layout("csv"), pa.schema([(name, pa.string()) for name in schema])).begin()
            self._header = header.strip()
            self._feed(header)

    def parse(self, lines: Sequence[bytes]) -> Parsed:
        """Parse `lines`, each of which has no line feed but possibly one at its end."""
        refused: list[tuple[int, str]] = []
        candidates = [index for index, line in enumerate(lines) if self._is_row(index, line, refused)]
        pieces = [lines[index].rstrip(b"\r\n") + b"\n" for index in candidates]
        starts = list(accumulate((len(piece) for piece in pieces), initial=self._offset))
        batches = self._feed(b"".join(pieces))
        misfits = {bisect_right(starts, offset) - 1: reason for offset, reason in self._refused.take()}
        refused += [(candidates[position], reason) for position, reason in misfits.items()]
        accepted = [index for position, index in enumerate(candidates) if position not in misfits]
        rows = pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], self.schema)
        return Parsed(rows, accepted, sorted(refused))

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


class _AllRejected(ReadSummary):
    """Holds every rejected row until `take` is called."""

    def __init__(self) -> None:
        super().__init__()
        self._rejected: list[tuple[int, str]] = []

    def reject(self, offset: int, reason: str) -> None:
        self._rejected.append((offset, reason))

    def take(self) -> list[tuple[int, str]]:
        rejected, self._rejected = self._rejected, []
        return rejected
