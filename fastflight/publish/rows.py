"""Turns the traffic of a device into rows to publish. No I/O.

A row is a text line that the device sent, as in a live session of format `lines`, `jsonl` or `csv`. Its columns are
`seq`, the number of the chunk in which it begins; `line`, the number of line ends before it in that chunk;
`time`; and the columns of the format. `seq` and `line` identify a row: a row that is published again has the same.

Each line has an end, a `Position`. Traffic that is read again from there gives the lines after it, and no others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from fastflight.errors import RequestError
from fastflight.gap import Gap
from fastflight.sources.row_layout import RowLayout
from fastflight.sources.session_lines import LineSplitter, SessionLine
from fastflight.sources.session_rows import CUT, TIME
from fastflight.transport.chunk_buffer import Chunk

# Columns that every row has, before those of the format.
PLACE = [pa.field("seq", pa.uint64()), pa.field("line", pa.uint32()), pa.field("time", TIME)]
TEXT = pa.schema([pa.field("text", pa.string())])


class Position(NamedTuple):
    """A place in the traffic: after the first `lines` line ends of chunk `seq`.

    `begins_line`: a line is known to begin there.
    """

    seq: int
    lines: int = 0
    begins_line: bool = False


class PublishedLine(NamedTuple):
    """A line, its number in the chunk where it begins, and its end."""

    line: SessionLine
    number: int
    end: Position


@dataclass(frozen=True, slots=True)
class RowFormat:
    """How the lines of a device become rows; without a `layout`, each is a text. `units` are by column.

    `RequestError` for a schema that is missing or wrong.
    """

    layout: RowLayout | None = None
    units: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        columns = self.columns
        if "line" in columns.names:
            raise RequestError("every row has a column of this name", where="schema.line", hint="Give it another name")
        for name in self.units:
            if name not in columns.names:
                raise RequestError("no column has this name", where=f"units.{name}", hint="Name a column of the schema")

    @property
    def columns(self) -> pa.Schema:
        """The columns of the format, without `PLACE`."""
        return TEXT if self.layout is None else self.layout.parser().schema


class RowReader:
    """Reads lines from the traffic after `start`: pass it to `feed`. `rows` makes rows of them."""

    def __init__(self, rows: RowFormat, start: Position) -> None:
        self._parser = None if rows.layout is None else rows.layout.parser()
        self._schema = pa.schema([*PLACE, *rows.columns])
        self._splitter = LineSplitter(start.begins_line)
        self._start = start
        self._number = 0
        # The end of the last line.
        self.end = start

    def feed(self, items: Iterable[Chunk | Gap]) -> list[PublishedLine]:
        """Take the next traffic and return the lines that end in it."""
        lines: list[PublishedLine] = []
        for item in items:
            if isinstance(item, Gap):
                self._cut(CUT, lines)
                self.end = Position(item.last + 1)
                continue
            # The cut of a chunk is before its first byte, and so before a place within the chunk.
            if item.cut and not self._done(item):
                self._cut(item.cut, lines)
            if item.direction == "rx":
                self._take(item, lines)
            if self._splitter.partial_seq is None:
                self.end = Position(item.seq + 1, 0, self._splitter.begins_line)
        return lines

    def rows(self, lines: Sequence[PublishedLine]) -> pa.RecordBatch:
        """Return the rows of `lines`. Lines that do not fit the schema have none, and neither have blank ones."""
        if self._parser is None:
            text = [each.line.data.removesuffix(b"\r").decode("utf-8", "replace") for each in lines]
            found, columns = lines, [pa.array(text, pa.string())]
        else:
            whole = [each for each in lines if not each.line.cut]
            parsed = self._parser.parse([each.line.data for each in whole])
            found, columns = [whole[index] for index in parsed.lines], parsed.rows.columns
        times = [None if each.line.time_ns is None else each.line.time_ns // 1000 for each in found]
        places = [
            pa.array([each.line.seq for each in found], pa.uint64()),
            pa.array([each.number for each in found], pa.uint32()),
            pa.array(times, TIME),
        ]
        return pa.record_batch([*places, *columns], schema=self._schema)

    def _take(self, chunk: Chunk, lines: list[PublishedLine]) -> None:
        done = self._done(chunk)
        pieces = chunk.data.split(b"\n")
        for number, piece in enumerate(pieces[done:], done):
            ends = number < len(pieces) - 1
            if self._splitter.partial_seq is None:
                self._number = number
            found = self._splitter.feed(chunk._replace(data=piece + b"\n" * ends))
            if ends:
                self.end = Position(chunk.seq, number + 1, True)
            lines += [PublishedLine(line, self._number, self.end) for line in found]

    def _done(self, chunk: Chunk) -> int:
        """Return how many line ends of `chunk` are before the start."""
        return self._start.lines if chunk.seq == self._start.seq else 0

    def _cut(self, reason: str, lines: list[PublishedLine]) -> None:
        lines += [PublishedLine(line, self._number, self.end) for line in self._splitter.end(reason)]


def is_number(kind: pa.DataType) -> bool:
    """Whether a column of this type holds numbers or truth values."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))
