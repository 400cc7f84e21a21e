"""What a reader of a printing board has seen, and whether that is all of it.

`Rows` counts parsed rows (format `jsonl`): each must be of the board, and have the number after the last one's.
`Traffic` counts the bytes of a line (format `bytes`): each chunk must have the number after the last one's, and all
bytes together the CRC-32 of what the board has printed. A gap that the server tells of counts as what it says, to the
chunk; anything else that is missing, or comes twice, is `wrong`.
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
# A row of a printing board is shorter.
ROW_BYTES = 128
JSON_SCHEMA = {"board": "int64", "n": "int64", "ns": "int64"}
Numbers: TypeAlias = npt.NDArray[np.int64]
NONE: Numbers = np.zeros(0, np.int64)


class Count:
    """Rows or chunks so far: how many, the number of the first and the one that comes next, and what is amiss."""

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
        """Count these, which must go on from the last ones."""
        if not self._begun:
            self._begun, self.first, self.next = True, int(numbers[0]), int(numbers[0])
        self.wrong += int((numbers != np.arange(self.next, self.next + len(numbers))).sum())
        self.next = int(numbers[-1]) + 1
        self.count += len(numbers)


class Rows(Count):
    """Of board number `board`. `lost` are rows."""

    def reached(self, end: int) -> bool:
        """Whether the row before number `end` has come."""
        return self.next >= end

    def take(self, batch: pa.RecordBatch, note: Mapping[str, Any], now: int) -> Numbers:
        """Count a batch that came at `now`. Nanoseconds since each of its rows was printed."""
        self.gaps += "gap" in note
        if not batch.num_rows:
            return NONE
        numbers = batch.column("n").to_numpy()
        if "gap" in note and self._begun and numbers[0] > self.next:
            # It tells of chunks: how many rows those held, the numbers say. Rows that come again are in no gap.
            self.lost += int(numbers[0]) - self.next
            self.next = int(numbers[0])
        self._number(numbers)
        self.wrong += int((batch.column("board").to_numpy() != self.board).sum())
        return np.asarray(now - batch.column("ns").to_numpy())


class Traffic(Count):
    """Of whichever board. `lost` are chunks, as the gaps say."""

    def reached(self, end: int) -> bool:
        """Whether so many bytes have come."""
        return self.bytes >= end

    def take(self, batch: pa.RecordBatch, note: Mapping[str, Any], now: int) -> Numbers:
        """Count a batch that came at `now`. Nanoseconds since the first and the last row in it were printed."""
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
        # The newest alone would say nothing of how long the others waited for it.
        first, last = CLOCK.search(data[: 2 * ROW_BYTES]), CLOCK.findall(data[-2 * ROW_BYTES :])
        return now - np.array([int(first[1]), int(last[-1])], np.int64) if first and last else NONE


def contents(column: pa.BinaryArray) -> memoryview:
    """The bytes of all values, one after the other, as they lie in memory."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    return memoryview(column.buffers()[2])[int(offsets[0]) : int(offsets[-1])]
