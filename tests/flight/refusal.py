"""What a refusal looks like to a plain Flight client: its class, what it says, and what it must never say."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.flight as flight

FILE = {"type": "device.file", "device": "demo"}
OLD = b"n\n1\n2\n3\n"
TABLE = pa.table({"n": pa.array(range(5000), pa.int64())})
# What no message may hold: paths of the host, and parts of a traceback of ours.
TELLTALE = ("Traceback", '.py"', "site-packages", str(Path(__file__).parents[2]), str(Path.home()), "pytest-of")

# How each status reaches a client of pyarrow.
INVALID_ARGUMENT = pa.ArrowInvalid
NOT_FOUND = pa.ArrowKeyError
UNAVAILABLE = flight.FlightUnavailableError
TIMED_OUT = flight.FlightTimedOutError
DEVICE = flight.FlightServerError
INTERNAL = flight.FlightInternalError


def refused(error: BaseException | None, kind: type[Exception] | tuple[type[Exception], ...], *said: str) -> str:
    """Check an error's class and text; its text."""
    assert isinstance(error, kind), repr(error)
    text = str(error)
    for part in said:
        assert part in text
    for part in TELLTALE:
        assert part not in text
    return text
