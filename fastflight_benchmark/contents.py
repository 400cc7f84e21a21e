"""The contents of transferred files. They are the same in every run, and resemble files that people keep on boards."""

from __future__ import annotations

import random
from typing import Literal

UPLOAD, DOWNLOAD = "upload", "download"
Kind = Literal["random", "csv", "python"]

KINDS: tuple[Kind, ...] = ("random", "csv", "python")
# A fixed seed, so that everybody gets the same bytes.
SEED = 2026

STATEMENTS = (
    "def {a}({b}, {c}=0):",
    "    if {b} > {n}:",
    "        return {b} * {c} + {n}",
    '    """The {a} of {b}, as the sensor gives it."""',
    "    for {c} in range({n}):",
    "        self.{a}.append({b}[{c}])",
    "    {a} = machine.Pin({n}, machine.Pin.OUT)",
    "    # {a} must be read before {b}: the bus is shared",
    "",
)
WORDS = "temperature humidity pressure sample reading sensor offset channel buffer window average limit state".split()


def make(kind: Kind, size: int) -> bytes:
    """Return exactly `size` bytes: random bytes, readings of a logger, or Python source."""
    chance = random.Random(f"{kind} {SEED}")
    if kind == "random":
        return chance.randbytes(size)
    content = bytearray(b"time,temperature,humidity,pressure,state\n" if kind == "csv" else b"import machine\n\n\n")
    number = 0
    while len(content) < size:
        number += 1
        content += (_reading(chance, number) if kind == "csv" else _statement(chance)).encode()
    return bytes(content[:size])


def _reading(chance: random.Random, number: int) -> str:
    minute, second = divmod(number * 10, 60)
    hour, minute = divmod(minute, 60)
    day, hour = divmod(hour, 24)
    when = f"2026-01-{1 + day % 28:02}T{hour:02}:{minute:02}:{second:02}Z"
    values = f"{chance.gauss(21, 3):.2f},{chance.gauss(45, 8):.1f},{chance.gauss(101_300, 40):.0f}"
    return f"{when},{values},{'ok' if chance.random() > 0.02 else 'low battery'}\n"


def _statement(chance: random.Random) -> str:
    line = chance.choice(STATEMENTS)
    return (
        line.format(a=chance.choice(WORDS), b=chance.choice(WORDS), c=chance.choice("ijkxy"), n=chance.randrange(200))
        + "\n"
    )
