"""What a target makes of its bytes: choices first, then what is to be parsed.

Any bytes are good for any sequence of choices: what lacks at the end is zeros. So each mutation means something.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

# One input in sixteen is long: most of what a parser decides, it decides within a line.
STRETCHES_FROM = 0xF0
# Far enough for the limits that parsers have: sixteen times this is 8 KB.
STRETCH = 512
# A parser is called once for each piece: byte by byte, which the parsers' own tests do, is many times slower.
MAX_CUTS = 12


class Material:
    """Bytes that are used up from the front."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        """There is something left."""
        return self._at < len(self._data)

    def byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1] if self._at <= len(self._data) else 0

    def pick(self, choices: Sequence[T]) -> T:
        return choices[self.byte() % len(choices)]

    def take(self, size: int) -> bytes:
        self._at += size
        return self._data[self._at - size : self._at]

    def piece(self) -> bytes:
        """As many bytes as the next one says."""
        return self.take(self.byte())

    def rest(self) -> bytes:
        at, self._at = self._at, len(self._data)
        return self._data[at:]

    def stretched(self) -> bytes:
        """The rest, its last byte as often as the first one says: long runs from short inputs."""
        times = max(0, self.byte() + 1 - STRETCHES_FROM) * STRETCH
        rest = self.rest()
        return rest + rest[-1:] * times


def cut(data: bytes, pattern: int, most: int = MAX_CUTS) -> list[bytes]:
    """`data` in pieces of two lengths, in turn, which a byte says: at most `most` of them, and the rest."""
    lengths = (pattern & 15) + 1, (pattern >> 4) * 5 + 1
    pieces: list[bytes] = []
    while data and len(pieces) < most:
        size = lengths[len(pieces) % 2]
        pieces.append(data[:size])
        data = data[size:]
    return [*pieces, data] if data else pieces
