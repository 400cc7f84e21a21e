"""Counts what a reader of a printing board received, and checks that it is complete.

`Rows` counts parsed rows (format `jsonl`): each must be from the board and have the next number. `Traffic` counts the
bytes of a line (format `bytes`): each chunk must have the next number, and all bytes together must have the CRC-32 of
the board's output. Rows or chunks that the server reports in a gap are `lost`. Rows or chunks that are missing without
a gap, or arrive twice, are `wrong`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

# The clock in a row of a printing board.
CLOCK = re.compile(rb'"ns": (\d+)}')
# More bytes than any row of a printing board.
ROW_BYTES = 128
JSON_SCHEMA = {"board": "int64", "n": "int64", "ns": "int64"}
Numbers: TypeAlias = npt.NDArray[np.int64]
NONE: Numbers = np.zeros(0, np.int64)


class Count:
    """The rows or chunks so far: their count, the first and the next number, and errors."""

    def __init__(self, board: int) -> None:
        self.board = board
        self.count = 0
        self.first = 0
        self.next = 0
        self.gaps = 0
        self.lost = 0
        self.wrong = 0
        self.bytes = 0
        self.crc = 0
        self._begun = False

    def _number(self, numbers: Numbers) -> None:
        """Count these numbers, which must continue the last ones."""
        if not self._begun:
            self._begun, self.first, self.next = True, int(numbers[0]), int(numbers[0])
        self.wrong += int((numbers != np.arange(self.next, self.next + len(numbers))).sum())
        self.next = int(numbers[-1]) + 1
        self.count += len(numbers)


class Rows(Count):
    """Counts the rows of board number `board`. `lost` counts rows."""

    def reached(self, end: int) -> bool:
        """Whether the row before number `end` has arrived."""
        return self.next >= end

    def take(self, batch: pa.RecordBatch, note: Mapping[str, Any], now: int) -> Numbers:
        """Count a batch that arrived at `now`. Return, for each of its rows, the nanoseconds since it was printed."""
        self.gaps += "gap" in note
        if not batch.num_rows:
            return NONE
        numbers = batch.column("n").to_numpy()
        if "gap" in note and self._begun and numbers[0] > self.next:
            # The gap reports chunks. The row numbers say how many rows they had. Repeated rows are not part of a gap.
            self.lost += int(numbers[0]) - self.next
            self.next = int(numbers[0])
        self._number(numbers)
        self.wrong += int((batch.column("board").to_numpy() != self.board).sum())
        return np.asarray(now - batch.column("ns").to_numpy())


class Traffic(Count):
    """Counts the chunks and bytes of any board. `lost` counts chunks, as reported by gaps."""

    def reached(self, end: int) -> bool:
        """Whether `end` bytes have arrived."""
        return self.bytes >= end

    def take(self, batch: pa.RecordBatch, note: Mapping[str, Any], now: int) -> Numbers:
        """Count a batch that arrived at `now`. Return the nanoseconds since its first and its last row were printed."""
        if "gap" in note:
            first, last = note["gap"]["first"], note["gap"]["last"]
            self.gaps += 1
            self.lost += last - first + 1
            self.wrong += self._begun and first != self.next
            if not self._begun:
                self._begun, self.first = True, first
            self.next = last + 1
        if not batch.num_rows:
            return NONE
        self._number(batch.column("seq").to_numpy().astype(np.int64))
        data = contents(batch.column("data"))
        self.bytes += len(data)
        self.crc = zlib.crc32(data, self.crc)
        # The newest row alone would not show how long the older ones waited for it.
        first, last = CLOCK.search(data[: 2 * ROW_BYTES]), CLOCK.findall(data[-2 * ROW_BYTES :])
        return now - np.array([int(first[1]), int(last[-1])], np.int64) if first and last else NONE


def contents(column: pa.BinaryArray) -> memoryview:
    """Return the bytes of all values, one after the other, without a copy."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    return memoryview(column.buffers()[2])[int(offsets[0]) : int(offsets[-1])]
