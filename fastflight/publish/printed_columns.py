"""The numbers that a device prints, by column, for the rules of alerts. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from fastflight.errors import FastFlightError
from fastflight.gap import Gap
from fastflight.publish.rows import is_number
from fastflight.sources.row_layout import Layout
from fastflight.sources.session_lines import LineSplitter, SessionLine
from fastflight.sources.session_rows import CUT
from fastflight.tables import LineParser
from fastflight.tables.json_objects import parse_object
from fastflight.transport.chunk_buffer import Chunk

# Lines without a row after which the layout is looked for again. While none is found, twice as many lines must come
# each time, up to the last number.
OTHER_LAYOUT_LINES = 20
MAX_WAIT_LINES = 5000
# Larger numbers are mistakes of the program on the device.
MAX_MAGNITUDE = 1e300

# By column.
Numbers = dict[str, list[float]]


class PrintedColumns:
    """Reads what one device prints. `find` returns how its lines become rows now; None if that is not known."""

    def __init__(self, find: Callable[[], Layout | None]) -> None:
        self._find = find
        self._splitter = LineSplitter(False)
        self._layout: Layout | None = None
        self._parser: LineParser | None = None
        # Lines since the layout was looked for, or since the last row; and how many of them make for another look.
        self._unread = 0
        self._look_at = 1

    def feed(self, items: Sequence[Chunk | Gap]) -> Numbers:
        """Take the next traffic. Return the numbers in its rows."""
        lines: list[SessionLine] = []
        for item in items:
            if isinstance(item, Gap) or item.cut:
                lines += self._splitter.end(CUT if isinstance(item, Gap) else item.cut)
            if isinstance(item, Chunk):
                lines += self._splitter.feed(item)
        whole = [line.data for line in lines if not line.cut and line.data.strip()]
        if not whole:
            return {}
        self._unread += len(whole)
        try:
            if self._unread >= self._look_at and (self._layout is None or self._unread >= OTHER_LAYOUT_LINES):
                self._look_at = min(2 * self._look_at, MAX_WAIT_LINES)
                self._unread, self._parser = 0, None
                self._layout = self._find()
            if self._layout is None:
                return {}
            found = _of_objects(whole) if self._layout.format == "jsonl" else self._of_cells(self._layout, whole)
        except FastFlightError:  # the lines are declared to be text, or a recording cannot be read
            return {}
        if found:
            self._unread, self._look_at = 0, 1
        return found

    def _of_cells(self, layout: Layout, lines: list[bytes]) -> Numbers:
        parser = self._parser = self._parser or layout.parser()
        parsed = parser.parse(lines)
        if parser.summary.null_cells:  # the types so far do not hold these values
            self._layout = layout.learn(lines)
            self._parser = self._layout.parser()
            parsed = self._parser.parse(lines)
        columns = zip(parsed.rows.schema, parsed.rows.columns, strict=True)
        numbers = {each.name: column.drop_null().cast(pa.float64()) for each, column in columns if is_number(each.type)}
        return {name: column.to_pylist() for name, column in numbers.items()} if parsed.lines else {}


def _of_objects(lines: list[bytes]) -> Numbers:
    """As a parser of JSON lines finds them, which takes a hundred times as long for a few lines."""
    found: Numbers = {}
    for parsed in (parse_object(line.strip()) for line in lines):
        if not isinstance(parsed, str):
            for name, value in parsed[0].items():
                if isinstance(value, int | float) and abs(value) < MAX_MAGNITUDE:  # false for NaN, too
                    found.setdefault(name, []).append(float(value))
    return found
