"""The board whose rows are counted: it prints numbered lines, and numbers its starts.

From any part of its output it is therefore known whether bytes are missing, wrong or repeated: `flaw` checks a stretch
of output without a gap. A start begins with an empty line; what stands before it was broken off.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from pyarrow import flight

PROGRAM = """\
import time

try:
    with open("/boot") as file:
        boot = int(file.read()) + 1
except OSError:
    boot = 0
with open("/boot", "w") as file:
    file.write(str(boot))
number = 0
print()
while True:
    print("%d:%d:%s" % (boot, number, "x" * (number * 7919 % 60)))
    number += 1
    time.sleep_ms(8)
"""
LINE = re.compile(rb"(\d+):(\d+):(x*)\r\n")


@dataclass(slots=True)
class Kept:
    """Rows of a recording: what was received, by number; where it does not go on; what is told to be missing."""

    rows: dict[int, bytes] = field(default_factory=dict)
    cuts: set[int] = field(default_factory=set)
    missing: list[tuple[int, int]] = field(default_factory=list)


def recorded(client: flight.FlightClient, name: str, start: int, timeout: float) -> Kept:
    """Read the recording `name` from number `start` on, with a bare pyarrow client."""
    ticket = flight.Ticket(json.dumps({"type": "recording", "name": name, "from_seq": start}).encode())
    reader = client.do_get(ticket, flight.FlightCallOptions(timeout=timeout))
    kept = Kept()
    while True:
        try:
            chunk = reader.read_chunk()
        except StopIteration:
            return kept
        if chunk.app_metadata is not None:
            told = json.loads(chunk.app_metadata.to_pybytes())
            if "gap" in told and told["gap"]["rows"] is None:
                kept.cuts.add(told["gap"]["first"])
            elif "gap" in told:
                kept.missing.append((told["gap"]["first"], told["gap"]["last"]))
        if chunk.data is not None:
            columns = (chunk.data.column(key).to_pylist() for key in ("seq", "direction", "data"))
            kept.rows.update((seq, data if way == "rx" else b"") for seq, way, data in zip(*columns, strict=True))


def stretches(kept: Kept) -> Iterator[bytes]:
    """Yield the stretches of output between gaps."""
    parts: list[bytes] = []
    following = -1
    for seq in sorted(kept.rows):
        if parts and (seq != following or seq in kept.cuts):
            yield b"".join(parts)
            parts = []
        parts.append(kept.rows[seq])
        following = seq + 1
    if parts:
        yield b"".join(parts)


def flaw(data: bytes) -> str:
    """Return what is wrong with a stretch of output, or an empty text."""
    last: tuple[int, int] | None = None
    cut = ""
    # The first line may have lost its beginning.
    end = data.find(b"\n") + 1
    for match in LINE.finditer(data, end):
        boot, number = int(match[1]), int(match[2])
        between = data[end : match.start()]
        begins_anew = last is not None and boot > last[0] and number == 0
        if last is not None and not begins_anew and (between or cut or (boot, number) != (last[0], last[1] + 1)):
            return f"line {boot}:{number} follows {last[0]}:{last[1]} after {between[:80]!r}{cut}"
        # A line that a start broke off has the banner's line end.
        cut = "" if len(match[3]) == number * 7919 % 60 else f", which has {len(match[3])} bytes"
        last, end = (boot, number), match.end()
    return ""
