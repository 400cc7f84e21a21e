"""Small requests, one after the other on a connection. Each answer is checked, and each request is timed.

Imports pyarrow and nothing of fastflight, like `reading`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyarrow import flight

from fastflight_benchmark.loading.reading import PATH_KEY

DO_GET, GET_FLIGHT_INFO, DO_ACTION = ("do_get", "get_flight_info", "do_action")
# An error is shortened to this length.
SHOWN_CHARACTERS = 200


class WrongAnswer(Exception):
    """The answer is not the one that was requested."""


@dataclass(slots=True)
class Calls:
    """The seconds of each successful call, and how often each error occurred."""

    latencies: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    began: float = float("inf")
    ended: float = 0.0


def call(operation: str, client: flight.FlightClient, payload: bytes, rows: int, path: str) -> Callable[[], None]:
    """Return one request as a function. It raises `WrongAnswer` unless the answer has `rows` rows and names `path`.

    `payload` is a ticket, the command of a descriptor, or the name of an action. An action must have one result.
    """
    if operation == DO_GET:
        ticket = flight.Ticket(payload)

        def do_get() -> None:
            stream = client.do_get(ticket)
            table = stream.read_all()
            served_path = (stream.schema.metadata or {}).get(PATH_KEY, b"").decode()
            _expect((table.num_rows, served_path), (rows, path))

        return do_get
    if operation == GET_FLIGHT_INFO:
        descriptor = flight.FlightDescriptor.for_command(payload)
        return lambda: _expect(client.get_flight_info(descriptor).total_records, rows)
    action = flight.Action(payload.decode(), b"")
    return lambda: _expect(len(list(client.do_action(action))), 1)


def repeat(request: Callable[[], None], until: float) -> Calls:
    """Repeat `request` until `time.perf_counter()` reaches `until`. The last call is finished and counted."""
    calls = Calls(began=time.perf_counter())
    now = calls.began
    while True:
        error = _error_of(request)
        before, now = now, time.perf_counter()
        if error:
            calls.errors[error] += 1
        else:
            calls.latencies.append(now - before)
        if now >= until:
            calls.ended = now
            return calls


def together(parts: Sequence[Calls]) -> dict[str, Any]:
    """Return the calls of several threads as one, for JSON."""
    return {
        "latencies": [latency for part in parts for latency in part.latencies],
        "errors": dict(sum((part.errors for part in parts), Counter[str]())),
        "began": min(part.began for part in parts),
        "ended": max(part.ended for part in parts),
    }


def _error_of(request: Callable[[], None]) -> str:
    try:
        request()
    except (flight.FlightError, pa.ArrowException, WrongAnswer, OSError) as error:
        return f"{type(error).__name__}: {error}"[:SHOWN_CHARACTERS]
    return ""


def _expect(answer: object, expected: object) -> None:
    if answer != expected:
        raise WrongAnswer(f"the answer is {answer!r}, expected {expected!r}")
