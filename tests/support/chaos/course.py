"""One way of a connection: which bytes pass, when, and what ends it. No I/O and no clock.

`feed` takes what came and gives steps to carry out in their order: `Pass` these bytes, `Wait` so long, `Break` the
connection. However the bytes are divided, the same ones pass, and it breaks at the same place.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from tests.support.chaos.fault import ENDINGS, Fault, Kind

# Of odd pieces: none is a size that anybody reads, and most are shorter than any frame's header.
ODD_BYTES = (1, 2, 3, 5, 7, 11, 13, 61, 251, 1021)
# A way with a pace moves so much of a second at once.
PACE_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Pass:
    """These bytes go on."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing passes for so long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Break:
    """The connection ends, as `fault` has it."""

    fault: Fault


Step: TypeAlias = Pass | Wait | Break


class Course:
    """What becomes of one way's bytes. `told` hears of each fault when it strikes."""

    def __init__(
        self, faults: Iterable[Fault] = (), *, seed: int = 0, told: Callable[[Fault], None] = lambda fault: None
    ) -> None:
        self._told = told
        self._random = random.Random(seed)
        self._count = 0
        self._broken = False
        self._ahead: deque[Fault] = deque()
        self.mend()
        self.strike(faults)

    def strike(self, faults: Iterable[Fault]) -> None:
        """Have these strike as well: their counts begin at the next byte."""
        moved = (replace(fault, at=fault.at + self._count) for fault in faults)
        self._ahead = deque(sorted((*self._ahead, *moved), key=lambda fault: fault.at))

    def mend(self) -> None:
        """No fault is in force any more."""
        self._ahead.clear()
        self._delay = 0.0
        self._rate = 0.0
        # Bytes of a piece: all there are, or 0 for odd ones.
        self._piece: int | None = None
        self._flips: list[int] = []

    def feed(self, data: bytes) -> Iterator[Step]:
        """What becomes of `data`; after a `Break` nothing."""
        while data and not self._broken:
            while self._ahead and self._ahead[0].at <= self._count:
                fault = self._ahead.popleft()
                self._told(fault)
                if fault.kind in ENDINGS:
                    self._broken = True
                    yield Break(fault)
                    return
                if fault.kind is Kind.PAUSE:
                    yield Wait(fault.amount)
                self._bear(fault)
            piece = data[: self._size(len(data))]
            data = data[len(piece) :]
            self._count += len(piece)
            if seconds := self._delay + (len(piece) / self._rate if self._rate else 0):
                yield Wait(seconds)
            yield Pass(self._changed(piece))

    def _bear(self, fault: Fault) -> None:
        """From now on."""
        match fault.kind:
            case Kind.DELAY:
                self._delay = fault.amount
            case Kind.THROTTLE:
                self._rate = fault.amount
            case Kind.SLICE:
                self._piece = int(fault.amount)
            case Kind.FLIP:
                self._flips.append(int(fault.amount))

    def _size(self, there: int) -> int:
        """Of the next piece: up to where something happens."""
        size = there if not self._ahead else min(there, self._ahead[0].at - self._count)
        if self._rate:
            size = min(size, max(1, int(self._rate * PACE_SECONDS)))
        if self._piece is not None:
            size = min(size, self._piece or self._random.choice(ODD_BYTES))
        return size

    def _changed(self, piece: bytes) -> bytes:
        if not self._flips:
            return piece
        first = piece[0]
        for bit in self._flips:
            first ^= 1 << bit
        self._flips.clear()
        return bytes([first]) + piece[1:]
