"""Finds numbers in the output of a device, for charts: `feed` takes bytes and returns points. Rows come from `tables`.

In a line with a JSON object or `key=value` pairs, the keys name the numbers. In a line of CSV, the last header names
them (a line without numbers that has as many cells), else their position does. All other output gives no points. Limits
apply to the length of a line, the lines that are parsed, and the columns, since a device may print without end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from fastflight.tables.json_objects import parse_object
from fastflight.tables.key_values import pairs_of

# Longer lines are counted, but not parsed.
MAX_LINE_BYTES = 2048
# Lines that are parsed of each call. The page calls ten times a second, so it draws up to 300 rows a second.
MAX_LINES = 30
# More charts than anybody reads. It also protects the memory from a device with ever new keys.
MAX_COLUMNS = 16
MAX_NAME_CHARACTERS = 40
# Length of the newest line, as it is shown.
MAX_SHOWN_CHARACTERS = 200
# Larger numbers are mistakes of the program on the device, and some JSON parsers cannot read them.
MAX_MAGNITUDE = 1e300

# The time in ms since 1970, then a value or None for each column that was known at that time.
Point = list[float | None]


class Columns:
    """The numeric columns in the output of one device."""

    def __init__(self) -> None:
        self.names: list[str] = []
        # The newest complete line.
        self.line = ""
        # The lines of the last call with their times, and how many of them were counted, but not parsed.
        self.lines: list[tuple[int, bytes]] = []
        self.skipped = 0
        self._incomplete = b""
        self._header: list[str] = []

    def cut(self) -> None:
        """Drop an incomplete line: the next bytes do not continue it."""
        self._incomplete = b""

    def feed(self, pieces: Iterable[tuple[int, bytes]]) -> tuple[int, list[Point]]:
        """Take output as pieces with their times (ns); return how many lines end, and the points.

        Of too many lines, the newest one and evenly spaced ones before it are parsed.
        """
        lines: list[tuple[int, bytes]] = []
        for time_ns, data in pieces:
            *whole, rest = data.split(b"\n")
            if whole:
                whole[0] = self._incomplete + whole[0]
                self._incomplete = rest[: MAX_LINE_BYTES + 1]
                lines += [(time_ns, line) for line in whole]
            else:
                self._incomplete = (self._incomplete + rest)[: MAX_LINE_BYTES + 1]
        points = []
        every = max(1, math.ceil(len(lines) / MAX_LINES))
        parsed = lines[::-every][::-1]
        self.lines, self.skipped = lines, len(lines) - len(parsed)
        for time_ns, line in parsed:
            found = self._numbers(line.strip()) if len(line) <= MAX_LINE_BYTES else {}
            if found:
                points.append(self._point(time_ns, found))
        if lines and (newest := lines[-1][1].strip()):
            self.line = newest[: MAX_SHOWN_CHARACTERS * 4].decode(errors="replace")[:MAX_SHOWN_CHARACTERS]
        return len(lines), points

    def _numbers(self, line: bytes) -> dict[str, float]:
        if line.startswith(b"{"):
            parsed = parse_object(line)
            row = {} if isinstance(parsed, str) else parsed[0]
            return {name: number for name, value in row.items() if (number := _number(value)) is not None}
        if (pairs := pairs_of(line)) is not None:
            return {name: number for name, value in pairs.items() if (number := _number(value)) is not None}
        cells = [cell.strip().strip('"') for cell in line.decode(errors="replace").split(",")]
        numbers = [_number(cell) for cell in cells]
        if all(number is None for number in numbers):
            # Prose has commas, too: this is used as a header only for lines with numbers and as many cells.
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
    """Return a finite number, or None. A bool is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and not value[:2].strip("+-.").isdigit() and not value.strip("+-.")[:1].isdigit():
        return None  # text that only Python's `float` takes for a number: `nan`, `infinity`
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and abs(number) < MAX_MAGNITUDE and "_" not in str(value) else None
