"""What the seeder sends, so that a client can tell whether it has it all, in order.

One block of random bytes, again and again. Its length is a prime: no read or frame is in step with it, so that a piece
that is lost, doubled or out of its place begins with the wrong bytes.
"""

from __future__ import annotations

import random

import numpy as np

from fastflight.errors import TransportError

MIB = 1024 * 1024
BLOCK_BYTES = 1_048_573
# The longest piece that a client looks at in one go.
LONGEST_BYTES = 4 * MIB
# Of each piece when it is not compared as a whole: its beginning and its end.
EDGE_BYTES = 64


def stream(size: int) -> bytes:
    """The first `size` bytes."""
    block = random.Random(7).randbytes(BLOCK_BYTES)
    return (block * (size // BLOCK_BYTES + 1))[:size]


class Checked:
    """Counts what comes, and compares it: all of it, or the edges of each piece."""

    def __init__(self, *, whole: bool) -> None:
        self._whole = whole
        self._expected = memoryview(stream(BLOCK_BYTES + LONGEST_BYTES))
        self._expected_bytes = np.frombuffer(self._expected, np.uint8)
        self.size = 0
        self.pieces = 0

    def begin(self) -> None:
        """A transfer begins."""
        self.size = self.pieces = 0

    def take(self, piece: memoryview) -> None:
        """The next piece. `TransportError` if it is not what the seeder sent."""
        place, size = self.size % BLOCK_BYTES, len(piece)
        if self._whole:
            same = np.array_equal(np.frombuffer(piece, np.uint8), self._expected_bytes[place : place + size])
        else:
            edge = min(EDGE_BYTES, size)
            end = place + size
            same = piece[:edge] == self._expected[place : place + edge] and (
                piece[size - edge :] == self._expected[end - edge : end]
            )
        if not same:
            raise TransportError(f"other bytes came than were sent, between {self.size} and {self.size + size}")
        self.size += size
        self.pieces += 1
