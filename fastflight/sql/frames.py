"""Frames between the server and a worker process: a kind and a payload, over a socket.

A worker sends `READY` and then waits for a query. That is a dialogue, which the server begins with `ASK`, the query,
and `ROWS`, its parameters. The worker answers `TABLES`, the tables that the query names. The server puts their rows
into the worker's folder and sends `FILES`, the names of these files, or null to end the query. Then the worker sends
the `SCHEMA` of the result and its `ROWS`; for a query that is only described, the `SCHEMA` of its parameters instead of
rows. The dialogue ends with the worker's `END`, or with `FAILED` at any time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

# The parameters of a query, for a worker. What the server takes from a worker has a lower limit.
MAX_FRAME_BYTES = 1 << 30


class Kind(IntEnum):
    ASK = 1
    TABLES = 2
    FILES = 3
    SCHEMA = 4
    ROWS = 5
    END = 6
    FAILED = 7
    READY = 8


class Frame(NamedTuple):
    """One message."""

    kind: Kind
    payload: bytes

    def json(self) -> Any:
        """Return the payload, which is JSON."""
        return json.loads(self.payload)


class Pipe:
    """One end of the socket, for one thread at a time. Sending and receiving raise `EOFError`."""

    def __init__(self, descriptor: int, max_bytes: int = MAX_FRAME_BYTES) -> None:
        """`descriptor` is that of the socket, which `close` closes. The other end may send frames of `max_bytes`."""
        self._connection: Connection[Any, Any] = Connection(descriptor)
        self._max_bytes = max_bytes

    def send(self, kind: Kind, payload: Any = b"") -> None:
        """Send a frame. `payload` is bytes, a buffer, or an object for JSON."""
        if isinstance(payload, dict | list):
            payload = json.dumps(payload).encode()
        with _end_is_an_error():
            self._connection.send_bytes(bytes([kind]))
            self._connection.send_bytes(payload)

    def waits(self, seconds: float) -> bool:
        """Whether nothing has come from the other end for `seconds`."""
        with _end_is_an_error():
            return not self._connection.poll(seconds)

    def receive(self) -> Frame:
        """Wait for the next frame and return it."""
        with _end_is_an_error():
            (kind,) = self._connection.recv_bytes(1)
            return Frame(Kind(kind), self._connection.recv_bytes(self._max_bytes))

    def close(self) -> None:
        """Close this end. The other end then gets `EOFError`."""
        self._connection.close()


@contextmanager
def _end_is_an_error() -> Iterator[None]:
    """Raise `EOFError` if either end is closed, or the other end sends something else than frames."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise EOFError("the other end is closed") from error
