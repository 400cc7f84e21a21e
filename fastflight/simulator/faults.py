"""Faults of a simulated board. Some occur once, at a certain byte of its traffic; others last.

Faults are set when the board starts (`--fault SPEC`, repeatable) or, with `--control`, while it runs (see `control`).
Any number may be active. N counts the bytes received (`rx`) or sent (`tx`) since the start, or since the fault was
added, so that a fault always occurs at the same place. Each of these faults occurs once.

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

# Any fixed number, so that random faults can be repeated and debugged.
DROP_SEED = 2026
# The exit status of an unplugged board, different from a crash (1) and from a bad option (2).
UNPLUGGED = 3
# A full ring that is not read for 5 ms at 115200 baud loses about this many bytes. Bytes that come later are kept.
OVERFLOW_BYTES, OVERFLOW_SECONDS = 64, 0.05
# The bit that a `flip` inverts: one in the middle of the byte.
FLIPPED_BIT = 0x10
# A mix: the number of strikes, their average distance in bytes, and the first byte, so that a host can connect first.
MIX_STRIKES, MIX_MEAN_BYTES, MIX_FIRST_BYTE = 8, 10_000, 2_000

# The effect of each strike, and the direction whose bytes it counts.
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
# These end a burst: the bytes after them are lost.
EVENTS = ("reset", "stall", "unplug")


class Strike(NamedTuple):
    """A fault at byte number `at` of a direction. `name` is its name in a spec, `act` its effect."""

    at: int
    act: str
    name: str


def _unplug() -> None:
    os._exit(UNPLUGGED)


class Faults:
    """The active faults, and their effect on traffic.

    `on_strike` is called with the spec of each fault that occurs. `unplug` ends the process.
    """

    def __init__(
        self,
        *,
        seed: int = DROP_SEED,
        unplug: Callable[[], None] = _unplug,
        on_strike: Callable[[str], None] = lambda spec: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.on_strike = on_strike
        self.unplug = unplug
        self._random = random.Random(seed)
        self._clock = clock
        self.clear()

    def clear(self) -> None:
        """Remove all faults."""
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
        """Parse specs. Raises `ValueError` for a spec that is not in the table above. `seed` is for `drop-rx`."""
        faults = cls(seed=seed, unplug=unplug)
        for spec in specs:
            faults._add(spec)
        faults.rx.sort()
        faults.tx.sort()
        return faults

    def join(self, others: Faults, *, received: int, sent: int) -> None:
        """Add the faults of `others`. Their counts begin now, after `received` and `sent` bytes of traffic."""
        self.rx = sorted(self.rx + [strike._replace(at=strike.at + received) for strike in others.rx])
        self.tx = sorted(self.tx + [strike._replace(at=strike.at + sent) for strike in others.tx])
        self.drop_rx = others.drop_rx or self.drop_rx
        self.flash_stall = others.flash_stall or self.flash_stall
        self.full_after = self.full_after if others.full_after is None else others.full_after

    def on_receive(self, data: bytes, before: int) -> tuple[bytes, str]:
        """Apply faults to received `data`, which follows `before` bytes.

        Return what the board receives of it, and `"reset"`, `"stall"` or `""`.
        """
        event = ""
        if self.rx and self.rx[0].at <= before + len(data):
            data, event = self._apply(self.rx, data, before)
            if event == "unplug":
                self.unplug()
        elif self._overflowing:
            data = self._drop_overflowing(data)
        if self.drop_rx:
            data = bytes(byte for byte in data if self._random.random() >= self.drop_rx)
        return data, event

    def send_allowance(self, sent: int, wanted: int) -> int:
        """Return how many of `wanted` bytes may be sent before the next reset, stall or unplug."""
        for strike in self.tx:
            if strike.act in EVENTS and sent < strike.at:
                return min(wanted, strike.at - sent)
        return wanted

    def on_send(self, data: memoryview, before: int) -> tuple[bytes | memoryview, str]:
        """Apply faults to `data`, which is sent after `before` bytes.

        Return what goes on the line, and `"reset"`, `"stall"`, `"unplug"` or `""`. After an `"unplug"`, send the bytes
        and then call `unplug`.
        """
        if self.tx and self.tx[0].at <= before + len(data):
            return self._apply(self.tx, bytes(data), before)
        return data, ""

    def on_write(self, growth: int) -> bool:
        """A file grows by `growth` bytes. Return whether the file system is full."""
        if self.full_after is None:
            return False
        if growth > self.full_after:
            self.on_strike(f"full-after={self.full_after}")
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
            self._add_mix(int(number))
        else:
            self._add_strike(name, int(number))

    def _add_strike(self, name: str, at: int) -> None:
        act, direction = STRIKES[name]
        (self.rx if direction == "rx" else self.tx).append(Strike(at, act, name))

    def _add_mix(self, seed: int) -> None:
        chance = random.Random(seed)
        at = float(MIX_FIRST_BYTE)
        for _ in range(MIX_STRIKES):
            at += chance.expovariate(1 / MIX_MEAN_BYTES)
            self._add_strike(chance.choice(MIXED), int(at))

    def _apply(self, strikes: list[Strike], data: bytes, before: int) -> tuple[bytes, str]:
        """Apply the strikes that fall into `data`. Return what is left of it, and the event that ended it."""
        left, start = bytearray(), before
        while strikes and strikes[0].at <= before + len(data):
            strike = strikes.pop(0)
            # An earlier strike affected or lost this byte, or the count is 0, which is no byte.
            if strike.at <= start:
                continue
            self.on_strike(f"{strike.name}={strike.at}")
            if strike.act in EVENTS:
                return bytes(left + self._drop_overflowing(data[start - before : strike.at - before])), strike.act
            left += self._drop_overflowing(data[start - before : strike.at - 1 - before])
            if strike.act == "flip":
                left.append(data[strike.at - 1 - before] ^ FLIPPED_BIT)
            elif strike.act == "overflow":
                self._overflowing = OVERFLOW_BYTES - 1
                self._overflow_end = self._clock() + OVERFLOW_SECONDS
            start = strike.at
        return bytes(left + self._drop_overflowing(data[start - before :])), ""

    def _drop_overflowing(self, data: bytes) -> bytes:
        if self._overflowing and self._clock() > self._overflow_end:
            self._overflowing = 0
        lost = min(self._overflowing, len(data))
        self._overflowing -= lost
        return data[lost:]
