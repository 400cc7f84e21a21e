"""What may happen to a connection, and how it is written: `KIND:WAY@PLACE` or `KIND:WAY@PLACE=AMOUNT`.

WAY is `out`, from the client to the target, or `back`. PLACE is a count of bytes of that way, since the fault was given
(`@1500`), or a time since then (`@0.25s`).

===========  ================================================  =============================
kind         what happens at the place                         amount
===========  ================================================  =============================
`delay`      from here on every piece comes later              seconds
`pause`      nothing passes for a while, then all goes on      seconds
`throttle`   from here on so much passes, and no more          bytes per second
`slice`      from here on it comes in pieces                   bytes of each; 0: odd ones
`flip`       one bit of the next byte is another               number of the bit, 0 to 7
`end`        both sides are told an orderly end (FIN)
`cut`        both sides are told that it broke (RST)
`silence`    half-open: either side's bytes are swallowed      seconds until `cut`; 0: never
===========  ================================================  =============================

Nothing is reordered, and nothing is lost but at the last three: this is what may happen to a stream.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What happens."""

    DELAY = "delay"
    PAUSE = "pause"
    THROTTLE = "throttle"
    SLICE = "slice"
    FLIP = "flip"
    END = "end"
    CUT = "cut"
    SILENCE = "silence"


class Way(StrEnum):
    """From the client to the target, or back."""

    OUT = "out"
    BACK = "back"


# After these no byte passes any more.
ENDINGS = frozenset({Kind.END, Kind.CUT, Kind.SILENCE})
# What an amount may be, and what it is where none is given.
AMOUNTS: Mapping[Kind, tuple[float, float, float]] = {
    Kind.DELAY: (0, 60, 0.02),
    Kind.PAUSE: (0, 600, 1),
    Kind.THROTTLE: (1, 1e9, 20_000),
    Kind.SLICE: (0, 65_536, 1),
    Kind.FLIP: (0, 7, 4),
    Kind.END: (0, 0, 0),
    Kind.CUT: (0, 0, 0),
    Kind.SILENCE: (0, 600, 0),
}
SPEC = re.compile(r"(?P<kind>[a-z]+):(?P<way>out|back)@(?P<place>[0-9.]+)(?P<unit>s?)(?:=(?P<amount>[0-9.]+))?")


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `at`: a count of bytes; or else `after`: seconds."""

    kind: Kind
    way: Way
    at: int = 0
    amount: float = 0.0
    after: float | None = None

    @classmethod
    def parse(cls, spec: str) -> Fault:
        """`ValueError` for what is not written as above."""
        match = SPEC.fullmatch(spec)
        if match is None or match["kind"] not in set(Kind):
            raise ValueError(
                f"not a fault: {spec!r}. Write KIND:out@BYTES, KIND:back@SECONDSs=AMOUNT; {', '.join(Kind)}"
            )
        kind = Kind(match["kind"])
        least, most, usual = AMOUNTS[kind]
        try:
            amount = usual if match["amount"] is None else float(match["amount"])
            place = float(match["place"]) if match["unit"] else int(match["place"])
        except ValueError as error:
            raise ValueError(f"not a number in the fault {spec!r}") from error
        if not least <= amount <= most:
            raise ValueError(f"the amount of {kind} is from {least:g} to {most:g}, not {amount:g}: {spec!r}")
        if match["unit"]:
            return cls(kind, Way(match["way"]), 0, amount, float(place))
        return cls(kind, Way(match["way"]), int(place), amount)

    def __str__(self) -> str:
        place = f"{self.at}" if self.after is None else f"{self.after!r}s"
        return f"{self.kind}:{self.way}@{place}={self.amount:g}"


def drawn(chance: random.Random, kind: Kind, reach: int, seconds: float, ways: Sequence[Way] = tuple(Way)) -> Fault:
    """A fault of this kind somewhere in the next `reach` bytes or, one time in four, `seconds`; by `chance` alone."""
    way = chance.choice(ways)
    amount = {
        Kind.DELAY: chance.choice((0.001, 0.005, 0.02)),
        Kind.PAUSE: round(chance.uniform(0.2, 2), 2),
        Kind.THROTTLE: chance.choice((5_000, 20_000, 100_000)),
        Kind.SLICE: chance.choice((0, 0, 1, 3)),
        Kind.FLIP: chance.randrange(8),
        Kind.SILENCE: round(chance.uniform(1, 4), 2),
    }.get(kind, 0)
    if chance.random() < 0.25:
        return Fault(kind, way, 0, amount, round(chance.uniform(0, seconds), 3))
    return Fault(kind, way, chance.randrange(reach), amount)
