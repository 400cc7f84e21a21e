"""Faults that a simulated board can be started with (`--fault SPEC`, repeatable).

====================  ===========================================================================================
spec                  what happens
====================  ===========================================================================================
`reset-after-rx=N`    the board resets when it has received N bytes; what follows in that burst is lost; once
`reset-after-tx=N`    the board resets when it has sent N bytes; once
`stall-after-rx=N`    after N received bytes the board neither takes nor sends another one, for good
`unplug-after-rx=N`   the process ends when it has received N bytes: the cable is pulled while the host writes
`exit-after-tx=N`     the process ends when it has sent N bytes: the cable is pulled while the host reads
`drop-rx=P`           each received byte is lost with probability P (0 to 1), by a seeded generator
`flash-stall=MS`      each write to a file takes MS milliseconds, in which the program does not read its line
`full-after=N`        the file system reports ENOSPC once N bytes have been written since start
====================  ===========================================================================================

Counts are since the start of the process, so a fault strikes at the same byte every time.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable

# Any fixed number: a fault that cannot be repeated cannot be debugged.
DROP_SEED = 2026
# What a process that was unplugged exits with, to tell it from a crash (1) and from a bad option (2).
UNPLUGGED = 3


def _unplug() -> None:
    os._exit(UNPLUGGED)


class Faults:
    """The parsed specs, and what they do to traffic. `None` means that the fault is not there."""

    def __init__(self, *, unplug: Callable[[], None] = _unplug) -> None:
        self.reset_after_rx: int | None = None
        self.reset_after_tx: int | None = None
        self.stall_after_rx: int | None = None
        self.unplug_after_rx: int | None = None
        self.exit_after_tx: int | None = None
        self.full_after: int | None = None
        self.drop_rx = 0.0
        self.flash_stall = 0
        self._unplug = unplug
        self._random = random.Random(DROP_SEED)

    @classmethod
    def parse(cls, specs: list[str], *, unplug: Callable[[], None] = _unplug) -> Faults:
        """Raises `ValueError` for a spec that is not in the table above."""
        faults = cls(unplug=unplug)
        for spec in specs:
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
            setattr(faults, name.replace("-", "_"), number)
        return faults

    def on_receive(self, data: bytes, before: int) -> tuple[bytes, str]:
        """`data` arrives after `before` bytes: what is left of it, and `"reset"`, `"stall"` or `""`."""
        event = ""
        for limit, name in (
            (self.reset_after_rx, "reset"),
            (self.stall_after_rx, "stall"),
            (self.unplug_after_rx, "unplug"),
        ):
            if limit is not None and before < limit <= before + len(data):
                data, event = data[: limit - before], name
        if event == "unplug":
            self._unplug()
        if self.drop_rx:
            data = bytes(byte for byte in data if self._random.random() >= self.drop_rx)
        return data, event

    def send_allowance(self, sent: int, wanted: int) -> int:
        """How many of `wanted` bytes may be sent before something happens."""
        for limit in (self.reset_after_tx, self.exit_after_tx):
            if limit is not None and sent < limit:
                wanted = min(wanted, limit - sent)
        return wanted

    def on_sent(self, sent: int) -> str:
        """`sent` bytes have been sent in all: `"reset"` or `""`."""
        if sent == self.exit_after_tx:
            self._unplug()
        return "reset" if sent == self.reset_after_tx else ""


SPECS: dict[str, type[int] | type[float]] = {
    "reset-after-rx": int,
    "reset-after-tx": int,
    "stall-after-rx": int,
    "unplug-after-rx": int,
    "exit-after-tx": int,
    "drop-rx": float,
    "flash-stall": int,
    "full-after": int,
}
