"""Faults of a simulated board: what strikes at a given byte of its traffic, and what lasts.

Given when the board starts (`--fault SPEC`, repeatable) or, to a board that listens to them, while it lives
(`control`); any number may be in force. A count says at which byte a fault strikes, so that it does so at the same
place every time: bytes received (`rx`) or sent (`tx`) since the start, or since the fault was given. Each strikes once.

====================  ===========================================================================================
spec                  what happens
====================  ===========================================================================================
`lose-rx=N`           the N-th byte received is lost
`lose-tx=N`           the N-th byte sent is lost
`flip-rx=N`           the N-th byte received arrives with one bit changed
`flip-tx=N`           the N-th byte sent arrives with one bit changed
`overflow-rx=N`       from the N-th byte received on, some are lost in a row, as from a ring that is full
`reset-after-rx=N`    the board resets when it has received N bytes; what follows in that burst is lost
`reset-after-tx=N`    the board resets when it has sent N bytes
`stall-after-rx=N`    after N received bytes the board neither takes nor sends another one, for good
`stall-after-tx=N`    after N sent bytes the board neither takes nor sends another one, for good
`unplug-after-rx=N`   the process ends when it has received N bytes: the cable is pulled while the host writes
`exit-after-tx=N`     the process ends when it has sent N bytes: the cable is pulled while the host reads
`mix=SEED`            a few bytes lost and changed, overflows and resets, both ways, at places that SEED decides
`drop-rx=P`           each received byte is lost with probability P (0 to 1), by a seeded generator
`flash-stall=MS`      each write to a file takes MS milliseconds, in which the program does not read its line
`full-after=N`        the file system reports ENOSPC once N bytes have been written
====================  ===========================================================================================
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

Direction = Literal["rx", "tx"]

# Any fixed number: a fault that cannot be repeated cannot be debugged.
DROP_SEED = 2026
# What a process that was unplugged exits with, to tell it from a crash (1) and from a bad option (2).
UNPLUGGED = 3
# A ring that finds no reader for 5 ms at 115200 baud loses about so many in a row; what comes later finds room again.
OVERFLOW_BYTES, OVERFLOW_SECONDS = 64, 0.05
# Of a changed byte: in the middle, so that neither its parity as text nor its order is kept.
FLIPPED_BIT = 0x10
# A mix: so many strikes, so far apart on average, none before a host could talk to the board at all.
MIX_STRIKES, MIX_MEAN_BYTES, MIX_FIRST_BYTE = 8, 10_000, 2_000

# What a strike does, and to which direction's count it belongs.
STRIKES: dict[str, tuple[str, Direction]] = {
    "lose-rx": ("lose", "rx"),
    "lose-tx": ("lose", "tx"),
    "flip-rx": ("flip", "rx"),
    "flip-tx": ("flip", "tx"),
    "overflow-rx": ("overflow", "rx"),
    "reset-after-rx": ("reset", "rx"),
    "reset-after-tx": ("reset", "tx"),
    "stall-after-rx": ("stall", "rx"),
    "stall-after-tx": ("stall", "tx"),
    "unplug-after-rx": ("unplug", "rx"),
    "exit-after-tx": ("unplug", "tx"),
}
MIXED = ("lose-rx", "lose-tx", "flip-rx", "flip-tx", "overflow-rx", "reset-after-rx", "reset-after-tx")
LASTING: dict[str, type[int] | type[float]] = {"drop-rx": float, "flash-stall": int, "full-after": int}
SPECS: dict[str, type[int] | type[float]] = dict.fromkeys(STRIKES, int) | {"mix": int} | LASTING
# These end a burst: what is behind them has nobody to arrive at.
EVENTS = ("reset", "stall", "unplug")


class Strike(NamedTuple):
    """A fault at the byte `at` of a direction, which is `name` in a spec and does `act`."""

    at: int
    act: str
    name: str


def _unplug() -> None:
    os._exit(UNPLUGGED)


class Faults:
    """What is in force, and what it does to traffic. `told` hears of each strike, as it was specified."""

    def __init__(
        self,
        *,
        seed: int = DROP_SEED,
        unplug: Callable[[], None] = _unplug,
        told: Callable[[str], None] = lambda spec: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.told = told
        self._unplug = unplug
        self._random = random.Random(seed)
        self._clock = clock
        self.clear()

    def clear(self) -> None:
        """No fault is in force any more."""
        self.rx: list[Strike] = []
        self.tx: list[Strike] = []
        self.drop_rx = 0.0
        # Milliseconds of each write, and the bytes until the file system is full (None: never).
        self.flash_stall = 0
        self.full_after: int | None = None
        self._overflowing = 0
        self._overflow_end = 0.0

    @classmethod
    def parse(cls, specs: Iterable[str], *, seed: int = DROP_SEED, unplug: Callable[[], None] = _unplug) -> Faults:
        """Raises `ValueError` for a spec that is not in the table above. `seed` decides which bytes are dropped."""
        faults = cls(seed=seed, unplug=unplug)
        for spec in specs:
            faults._add(spec)
        faults.rx.sort()
        faults.tx.sort()
        return faults

    def join(self, others: Faults, *, received: int, sent: int) -> None:
        """Take over the faults of `others`, whose counts begin now: when so much has been received and sent."""
        self.rx = sorted(self.rx + [strike._replace(at=strike.at + received) for strike in others.rx])
        self.tx = sorted(self.tx + [strike._replace(at=strike.at + sent) for strike in others.tx])
        self.drop_rx = others.drop_rx or self.drop_rx
        self.flash_stall = others.flash_stall or self.flash_stall
        self.full_after = self.full_after if others.full_after is None else others.full_after

    def on_receive(self, data: bytes, before: int) -> tuple[bytes, str]:
        """`data` arrives after `before` bytes: what is left of it, and `"reset"`, `"stall"` or `""`."""
        event = ""
        if self.rx and self.rx[0].at <= before + len(data):
            data, event = self._strike(self.rx, data, before)
            if event == "unplug":
                self._unplug()
        elif self._overflowing:
            data = self._overflow(data)
        if self.drop_rx:
            data = bytes(byte for byte in data if self._random.random() >= self.drop_rx)
        return data, event

    def send_allowance(self, sent: int, wanted: int) -> int:
        """How many of `wanted` bytes may be sent before something happens."""
        for strike in self.tx:
            if strike.act in EVENTS and sent < strike.at:
                return min(wanted, strike.at - sent)
        return wanted

    def on_send(self, data: memoryview, before: int) -> tuple[bytes | memoryview, str]:
        """`data` leaves after `before` bytes: what is on the line of it, and `"reset"`, `"stall"` or `""`.

        An `"unplug"` strikes when the host has had the rest: call `pull` then.
        """
        if self.tx and self.tx[0].at <= before + len(data):
            return self._strike(self.tx, bytes(data), before)
        return data, ""

    def pull(self) -> None:
        """The cable is pulled."""
        self._unplug()

    def on_write(self, growth: int) -> bool:
        """A file grows by so many bytes: whether the file system is full."""
        if self.full_after is None:
            return False
        if growth > self.full_after:
            self.told(f"full-after={self.full_after}")
            return True
        self.full_after -= max(0, growth)
        return False

    def _add(self, spec: str) -> None:
        name, _, value = spec.partition("=")
        if name not in SPECS:
            raise ValueError(f"unknown fault {name!r}: known are {', '.join(SPECS)}")
        kind = SPECS[name]
        try:
            number = kind(value)
        except ValueError:
            raise ValueError(f"fault {name} takes a number, not {value!r}") from None
        if number < 0 or (kind is float and number > 1):
            raise ValueError(f"fault {name} is out of range: {value}")
        if name in LASTING:
            setattr(self, name.replace("-", "_"), number)
        elif name == "mix":
            self._mix(int(number))
        else:
            self._place(name, int(number))

    def _place(self, name: str, at: int) -> None:
        act, direction = STRIKES[name]
        (self.rx if direction == "rx" else self.tx).append(Strike(at, act, name))

    def _mix(self, seed: int) -> None:
        chance = random.Random(seed)
        at = float(MIX_FIRST_BYTE)
        for _ in range(MIX_STRIKES):
            at += chance.expovariate(1 / MIX_MEAN_BYTES)
            self._place(chance.choice(MIXED), int(at))

    def _strike(self, strikes: list[Strike], data: bytes, before: int) -> tuple[bytes, str]:
        """Carry out what is due in `data`: what is left of it, and the event that ended it."""
        left, start = bytearray(), before
        while strikes and strikes[0].at <= before + len(data):
            strike = strikes.pop(0)
            # A reset may have swallowed the byte that this one was for, and a count of zero has passed already.
            if strike.at <= start:
                continue
            self.told(f"{strike.name}={strike.at}")
            if strike.act in EVENTS:
                return bytes(left + self._overflow(data[start - before : strike.at - before])), strike.act
            left += self._overflow(data[start - before : strike.at - 1 - before])
            if strike.act == "flip":
                left.append(data[strike.at - 1 - before] ^ FLIPPED_BIT)
            elif strike.act == "overflow":
                self._overflowing = OVERFLOW_BYTES - 1
                self._overflow_end = self._clock() + OVERFLOW_SECONDS
            start = strike.at
        return bytes(left + self._overflow(data[start - before :])), ""

    def _overflow(self, data: bytes) -> bytes:
        if self._overflowing and self._clock() > self._overflow_end:
            self._overflowing = 0
        lost = min(self._overflowing, len(data))
        self._overflowing -= lost
        return data[lost:]
