"""The content that the seeder sends, and the check that a client received all of it in order.

It is a block of random bytes, repeated. Its length is a prime number, so no read or frame is a whole number of blocks.
A lost, doubled or moved piece therefore begins with wrong bytes.
"""

from __future__ import annotations

import random

import numpy as np

from fastflight.errors import TransportError

MIB = 1024 * 1024
BLOCK_BYTES = 1_048_573
# The longest piece that a client checks at once.
LONGEST_BYTES = 4 * MIB
# Bytes at the beginning and at the end of each piece that are compared, if not the whole piece is.
EDGE_BYTES = 64


def stream(size: int) -> bytes:
    """Return the first `size` bytes."""
    block = random.Random(7).randbytes(BLOCK_BYTES)
    return (block * (size // BLOCK_BYTES + 1))[:size]


class Checked:
    """Counts the received bytes, and compares all of them, or the edges of each piece."""

    def __init__(self, *, whole: bool) -> None:
        self._whole = whole
        self._expected = memoryview(stream(BLOCK_BYTES + LONGEST_BYTES))
        self._expected_bytes = np.frombuffer(self._expected, np.uint8)
        self.size = 0
        self.pieces = 0

    def begin(self) -> None:
        """Begin a transfer."""
        self.size = self.pieces = 0

    def take(self, piece: memoryview) -> None:
        """Check the next piece. Raise `TransportError` if the seeder did not send it at this place."""
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
            raise TransportError(f"other bytes arrived than were sent, between {self.size} and {self.size + size}")
        self.size += size
        self.pieces += 1
