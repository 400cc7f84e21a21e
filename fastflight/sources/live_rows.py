"""The layout of what a device prints now: declared, or recognised in the lines that are in memory.

A session of typed rows has fixed columns. `LiveLayouts` finds them before it begins, and `LayoutWatch` the first line
that they do not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from fastflight.device import Device
from fastflight.errors import DataError, FastFlightError, RequestError, quantity
from fastflight.gap import Gap
from fastflight.sources.row_layout import DECLARE, NO_TABLE, OWN_COLUMNS, Layout, RowLayout
from fastflight.sources.session_lines import LineSplitter, SessionLine
from fastflight.tables.recognition import LEAST_ROWS, Recognised, recognise_format
from fastflight.transport.chunk_buffer import Chunk
from fastflight.transport.tap import Tap

# Lines that are looked at together for a layout.
MAX_LINES = 128
# The newest lines, which show whether a layout still holds. If it does not, so many of them are looked at for another.
NEWEST_LINES = 8
OTHER_LAYOUT_LINES = (4, 32)
# A device whose lines are text is looked at again for a list of tables when it has sent so many chunks more.
TEXT_CHUNKS = 64
# So many lines without a table, or bytes without a line, are text: a session does not wait for more.
ENOUGH_LINES, ENOUGH_BYTES = 20, 64 * 1024


@dataclass(frozen=True, slots=True)
class Found:
    """The layout of a device's lines, if there is one, and the number after the traffic that was looked at.

    `lines`: how many whole lines these were. `is_text`: they are enough to say that they are no table.
    """

    layout: Layout | None
    end: int
    lines: int = 0
    is_text: bool = False

    def refusal(self, device: str) -> FastFlightError:
        """Return the error for a device without a layout."""
        if self.lines >= LEAST_ROWS:
            return RequestError(NO_TABLE, where=device, hint=DECLARE)
        printed = f"only {quantity(self.lines, 'line')}" if self.lines else "no whole line"
        return DataError(
            f"its columns are not known yet: it has printed {printed}",
            where=device,
            hint="Ask again when it has printed more, or declare its `rows` in its entry of the fleet file",
        )


class LiveLayouts:
    """The layouts of devices. Any thread may use it.

    `declared` returns the layout in a device's entry, and `recorded` the one that was recognised in its recording.
    """

    def __init__(
        self,
        declared: Callable[[str], RowLayout | None] = lambda name: None,
        recorded: Callable[[str], Recognised | None] = lambda name: None,
    ) -> None:
        self._declared = declared
        self._recorded = recorded
        # The names of CSV columns are in a header that may be in memory no more.
        self._recognised: dict[str, Recognised] = {}
        # The number of the next chunk of devices whose lines were text.
        self._text: dict[str, int] = {}

    def find(self, device: Device, since_seq: int | None = None) -> Found:
        """Return the layout of a device's newest lines, with types that hold the values of all lines in memory.

        With `since_seq`, earlier lines count only if there are too few since then.
        """
        if (declared := self._declared(device.name)) is not None:
            return Found(declared, device.tap.next_seq)
        lines, end, size = lines_in_memory(device.tap)
        whole = [line.data for line in lines if not line.cut and line.data.strip()]
        later = [line.data for line in lines if not line.cut and line.data.strip() and line.seq >= (since_seq or 0)]
        recorded = self._recorded(device.name)
        found = self._format(later if len(later) >= LEAST_ROWS else whole, recorded, device.name)
        if found is None:
            return Found(None, end, len(whole), len(whole) >= ENOUGH_LINES or size >= ENOUGH_BYTES)
        self._recognised[device.name] = replace(found, kinds={})
        return Found(found.learn(whole), end, len(whole))

    def has_table(self, device: Device) -> bool:
        """Whether what a device has printed is a table, as far as it is in memory. Once it was, that is not checked."""
        if (declared := self._declared(device.name)) is not None:
            return declared.format != "lines"
        if device.name in self._recognised:
            return True
        end = device.tap.next_seq
        if device.name in self._text and 0 <= end - self._text[device.name] < TEXT_CHUNKS:
            return False
        found = self.find(device)
        if found.is_text:
            self._text[device.name] = end
        return found.layout is not None

    def _format(self, lines: Sequence[bytes], recorded: Recognised | None, name: str) -> Recognised | None:
        if not lines:
            return recorded
        newest = lines[-NEWEST_LINES:]
        layouts: list[Recognised] = []
        for layout in self._of_old_lines(lines, recorded, name):
            if layout is not None:
                layouts.append(layout)
                if 2 * _rows(layout, newest) >= len(newest):
                    return layout
        for size in OTHER_LAYOUT_LINES:
            if (layout_now := recognise_format(lines[-size:])) is not None:
                return layout_now
        # The newest lines are text, such as a traceback.
        return next((each for each in layouts if _rows(each, lines)), None)

    def _of_old_lines(
        self, lines: Sequence[bytes], recorded: Recognised | None, name: str
    ) -> Iterator[Recognised | None]:
        yield recorded
        yield self._recognised.get(name)
        yield recognise_format(lines[:MAX_LINES])  # there may be a header


class LayoutWatch:
    """Finds the first line of a session, from number `start` on, that a recognised layout does not hold."""

    def __init__(self, layout: Recognised, start: int) -> None:
        self._layout = layout
        self._schema = layout.parser(OWN_COLUMNS).schema
        self._start = start
        # Learns what the values are, and what it has last found. Only what is new there can change a column.
        self._learner = layout.parser()
        self._values: dict[str, Any] = {}
        # The lines that were refused since the last row, and how many of them to look at next.
        self._refused: list[SessionLine] = []
        self._look_at = LEAST_ROWS
        # The number of the chunk with the line that does not fit, and why not.
        self.changed_at: int | None = None
        self.why = ""

    def fitting(self, lines: Sequence[SessionLine]) -> Sequence[SessionLine]:
        """Return the lines before the first one that needs other columns or types."""
        values = self._learner.learn([line.data for line in lines if line.seq >= self._start and not line.cut])
        before, self._values = self._values, {name: shape.as_json() for name, shape in values.items()}
        if self._values == before or self._learned(lines) == self._schema:
            return lines
        for index, line in enumerate(lines):
            if (schema := self._learned([line])) != self._schema:
                self.changed_at, self.why = line.seq, _difference(self._schema, schema)
                return lines[:index]
        return lines

    def add_refused(self, lines: Iterable[SessionLine], after_row: bool) -> None:
        """Add lines that are no rows, `after_row` if there was a row before them since the last ones."""
        if after_row:
            self._refused, self._look_at = [], LEAST_ROWS
        self._refused += (line for line in lines if line.seq >= self._start and not line.cut)
        if len(self._refused) < self._look_at or self.changed_at is not None:
            return
        if recognise_format([line.data for line in self._refused]) is not None:
            self.changed_at, self.why = self._refused[0].seq, "the lines have another format"
        self._look_at = 2 * len(self._refused)
        self._refused = self._refused[-MAX_LINES:]

    def _learned(self, lines: Sequence[SessionLine]) -> pa.Schema:
        """Return the columns that also hold the values of `lines`. They are learned if that changes nothing."""
        layout = self._layout.learn(line.data for line in lines if line.seq >= self._start and not line.cut)
        schema = layout.parser(OWN_COLUMNS).schema
        if schema == self._schema:
            self._layout = layout
        return schema


def lines_in_memory(tap: Tap) -> tuple[list[SessionLine], int, int]:
    """Return the lines of a tap that have ended, the number of its next chunk, and the bytes that were looked at."""
    reader = tap.reader(since_ns=0, counts_missed=False)
    splitter = LineSplitter(reader.begins_line)
    lines: list[SessionLine] = []
    size = 0
    for item in reader.rest():
        if isinstance(item, Gap):
            lines += splitter.end("the line was cut by a gap")
            continue
        size += len(item.data)
        lines += _lines_of(item, splitter)
    return lines, reader.next_seq, size


def _lines_of(chunk: Chunk, splitter: LineSplitter) -> list[SessionLine]:
    ended = splitter.end(chunk.cut) if chunk.cut else []
    return ended + splitter.feed(chunk)


def _rows(layout: Recognised, lines: Sequence[bytes]) -> int:
    """Return how many lines are rows of a layout."""
    return len(layout.learn(lines).parser().parse(lines).lines)


def _difference(old: pa.Schema, new: pa.Schema) -> str:
    """Say how columns differ."""
    said: list[Any] = [f"column {name} is new" for name in new.names if name not in old.names]
    said += [
        f"column {field.name} is {field.type}, not {old.field(field.name).type}"
        for field in new
        if field.name in old.names and old.field(field.name).type != field.type
    ]
    return ", ".join(said)
