"""Numbers in what a device prints, for a chart: fed bytes, gives points. For display only; rows are made by `tables`.

A line of JSON (an object) gives its numbers by their keys. A line of CSV gives its numbers by the last header that came
by (a line without numbers, as wide as the lines after it), else by their place. Whatever else a device prints gives
none. What a peer may send without end is bounded: a line's length, the lines that are looked at, the columns.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

# A longer line is counted, and not looked at.
MAX_LINE_BYTES = 2048
# Of what came since the last look: a screen shows no more in a tenth of a second. The newest count.
MAX_LINES = 12
# More charts than anybody looks at; a device that makes up keys cannot fill the memory.
MAX_COLUMNS = 16
MAX_NAME_CHARACTERS = 40
# Of the newest line, as text.
MAX_SHOWN_CHARACTERS = 200
# So large a number is an error of whoever printed it, and JSON's of other languages.
MAX_MAGNITUDE = 1e300

# The time in ms since 1970, then a value or None for each column that was known then.
Point = list[float | None]


class Columns:
    """The numeric columns of one device."""

    def __init__(self) -> None:
        self.names: list[str] = []
        # The newest line that was whole.
        self.line = ""
        self._held = b""
        self._header: list[str] = []

    def cut(self) -> None:
        """What comes next does not go on from what came before."""
        self._held = b""

    def feed(self, pieces: Iterable[tuple[int, bytes]]) -> tuple[int, list[Point]]:
        """Of pieces with their times (ns): how many lines they end, and the points of the newest ones."""
        lines: list[tuple[int, bytes]] = []
        for time_ns, data in pieces:
            *whole, rest = data.split(b"\n")
            if whole:
                whole[0] = self._held + whole[0]
                self._held = rest[: MAX_LINE_BYTES + 1]
                lines += [(time_ns, line) for line in whole]
            else:
                self._held = (self._held + rest)[: MAX_LINE_BYTES + 1]
        points = []
        for time_ns, line in lines[-MAX_LINES:]:
            found = self._numbers(line.strip()) if len(line) <= MAX_LINE_BYTES else {}
            if found:
                points.append(self._point(time_ns, found))
        if lines and (newest := lines[-1][1].strip()):
            self.line = newest[: MAX_SHOWN_CHARACTERS * 4].decode(errors="replace")[:MAX_SHOWN_CHARACTERS]
        return len(lines), points

    def _numbers(self, line: bytes) -> dict[str, float]:
        text = line.decode(errors="replace")
        if text.startswith("{"):
            try:
                row = json.loads(text)
            except (ValueError, RecursionError):
                return {}
            return {str(name): number for name, value in row.items() if (number := _number(value)) is not None}
        cells = [cell.strip().strip('"') for cell in text.split(",")]
        numbers = [_number(cell) for cell in cells]
        if all(number is None for number in numbers):
            # Prose has commas, too: as a header it counts only if lines of its width with numbers follow.
            self._header = cells if len(cells) > 1 and all(cells) else []
            return {}
        if len(self._header) == len(cells):
            names = self._header
        elif all(number is not None for number in numbers):
            names = ["value"] if len(cells) == 1 else [f"column {place + 1}" for place in range(len(cells))]
        else:
            return {}
        return {name: number for name, number in zip(names, numbers, strict=True) if number is not None}

    def _point(self, time_ns: int, found: dict[str, float]) -> Point:
        for name in found:
            if len(self.names) < MAX_COLUMNS and name[:MAX_NAME_CHARACTERS] not in self.names:
                self.names.append(name[:MAX_NAME_CHARACTERS])
        short = {name[:MAX_NAME_CHARACTERS]: number for name, number in found.items()}
        return [time_ns // 1_000_000, *(short.get(name) for name in self.names)]


def _number(value: Any) -> float | None:
    """A finite number, or None; True is not one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and not value[:2].strip("+-.").isdigit() and not value.strip("+-.")[:1].isdigit():
        return None  # `nan`, `infinity` and `1_0` are numbers to Python only
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and abs(number) < MAX_MAGNITUDE and "_" not in str(value) else None
