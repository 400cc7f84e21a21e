"""Times of a board's ticks: never after the line came, and never backwards within an alignment."""

from __future__ import annotations

import struct

from fastflight.service.requests import Ticks
from fastflight.sources.board_time import BoardTime
from tests.campaigns.fuzz.material import Material
from tests.campaigns.fuzz.target import Target

UNITS = ("s", "ms", "us", "ns")
PERIODS = (2**30, 0, 1, 1000, 2**64)
START_NS = 1_700_000_000_000_000_000


def run(data: bytes) -> None:
    material = Material(data)
    ticks = Ticks(
        column="t",
        unit=material.pick(UNITS),  # type: ignore[arg-type]
        period=material.pick(PERIODS),
        drift_ppm=1 + 390 * material.byte(),
        window_seconds=0.001 + material.byte(),
    )
    times = BoardTime(ticks)
    time_ns, value, before = START_NS, 0, 0
    seq = begun = 0
    while material:
        kind = material.byte()
        (jump,) = struct.unpack("<i", material.take(4).ljust(4, b"\0"))
        if kind == 0:
            times.restart("on request")
        # The clock that the server reads may be set back.
        time_ns += abs(jump) << (kind & 15) if kind & 16 else abs(jump)
        time_ns -= abs(jump) if kind & 0xC0 == 0xC0 else 0
        value += (jump if kind & 32 else abs(jump) // 1000) << (kind & 7)
        value = max(-(2**63), min(value, 2**64 - 1))
        told = times.feed(seq, time_ns, value)
        new = times.take_note()
        fresh = begun == 0 or bool(new)
        assert told <= time_ns // 1000
        assert fresh or told >= before, (told, before)
        before, begun = told, 1
        seq += 1
    assert times.summary()
    assert times.metadata()


TARGET = Target(
    run,
    seeds=(
        b"\x01\x00\x00\x0a" + b"\x01\x40\x42\x0f\x00" * 8,
        b"\x02\x01\x01\x00" + b"\x11\x00\x00\x10\x00\x31\x00\x00\xff\xff" * 3,
        b"\x00\x04\xff\x01\x3f\xff\xff\xff\x7f\x3f\xff\xff\xff\x80",
        b"\x03\x02\x05\x02\x00\x00\x00\x00\x00\xc1\x00\x10\x00\x00",
    ),
)
