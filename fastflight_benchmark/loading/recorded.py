"""Checks that a server recorded all output of the boards: reads every recording, and compares all bytes."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow.flight as flight

from fastflight_benchmark.loading.counting import contents
from fastflight_benchmark.printing_boards import Printed

# The log stores the last rows a moment after they were printed. A slow disk takes longer.
KEPT_SECONDS = 10.0
POLL_SECONDS = 0.1


@dataclass(slots=True)
class Replayed:
    """Rows and bytes of all recordings, the number of wrong recordings, and the seconds that reading took."""

    rows: int = 0
    bytes: int = 0
    wrong: int = 0
    seconds: float = 0.0


def replayed(location: str, printed: Sequence[Printed]) -> Replayed:
    """Read the recording of every board, and compare it with what the board printed."""
    replay = Replayed()
    deadline = time.monotonic() + KEPT_SECONDS
    with flight.FlightClient(location) as client:
        for number, board in enumerate(printed):
            while True:
                began = time.perf_counter()
                found = recorded(client, f"board-{number}")
                seconds = time.perf_counter() - began
                if found.bytes >= board.bytes or time.monotonic() > deadline:
                    break
                time.sleep(POLL_SECONDS)
            replay.rows += found.rows
            replay.bytes += found.bytes
            replay.seconds += seconds
            replay.wrong += found != board
    return replay


def recorded(client: flight.FlightClient, name: str) -> Printed:
    """Return what a recording holds of its board. Gaps are ignored."""
    found = Printed()
    ticket = json.dumps({"type": "recording", "name": name, "format": "bytes"}).encode()
    for chunk in client.do_get(flight.Ticket(ticket)):
        if not chunk.data.num_rows:
            continue
        data = contents(chunk.data.column("data"))
        found.rows += bytes(data).count(b"\n")
        found.bytes += len(data)
        found.crc = zlib.crc32(data, found.crc)
    return found
