"""Turns Flight's errors into the typed errors of `fastflight.errors`.

Every call into Flight runs within `typed_errors(location)`, which raises a `FastFlightError` instead. A fastflight
server describes its errors in `extra_info`. Flight does not transport it for INVALID_ARGUMENT and NOT_FOUND: their text
begins with the message, and the class name follows in Arrow's details (`fastflight.client.described`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyarrow import flight

from fastflight.client.described import CLASS_OF_NAME, NotReached, described, no_server, parsed
from fastflight.errors import (
    FastFlightError,
    Forbidden,
    RequestError,
    TransportClosed,
    TransportError,
    TransportTimeout,
    Unauthenticated,
    UnknownName,
)

# Arrow and gRPC append details to a message, including a traceback of the server. Users should not see them.
APPENDED_BY_ARROW = (". Detail:", ". gRPC client debug context:", ". Client context:")
# How Arrow names the class that the server raised.
RAISED_BY_SERVER = re.compile(r"Detail: Python exception: (\w+)")
# gRPC's texts for a connection that was never made. The texts for a lost connection differ by platform.
NEVER_CONNECTED = (
    "failed to connect",
    "errors resolving",
    "DNS resolution failed",
    "connections to all backends failing",
)
# Texts of OpenSSL and gRPC for TLS failures, each with our message and hint.
BY_TLS = (
    (
        "certificate verify failed",
        "the server's certificate is not trusted",
        "Give the certificate of its CA: --tls-ca FILE, or Credentials(ca=...)",
    ),
    (
        "is not in peer certificate",
        "the server's certificate is for another name",
        "Use one of the names that were given to `fastflight cert server`",
    ),
    ("wrong version number", "the server does not speak TLS", "Use grpc:// instead of grpc+tls://"),
)
# The only text that gRPC gives when the peer expects TLS, or a client certificate, and the client has none.
CLOSED_AT_ONCE = re.compile(r"failed to connect to all addresses; last error: UNAVAILABLE: .*Socket closed")

# pyarrow's text for a call of a client that another thread has closed.
CLOSED_MEANWHILE = "FlightClient is closed"
# gRPC's text for a stream that lost its connection, and the part of it that says that TLS found damaged data.
STREAM_LOST, DAMAGED = "Stream removed", "TSI_DATA_CORRUPTED"


@contextmanager
def typed_errors(location: str) -> Iterator[None]:
    """Raise Flight's errors as ours. `location`, the server's address, is the `where` of errors without another one."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise typed(error, location) from error


def typed(error: BaseException, location: str) -> FastFlightError:
    """Return the typed error for an error of Flight."""
    of_server = described(getattr(error, "extra_info", None))
    if of_server is not None:
        return of_server
    text = _first_part(str(error))
    match error:
        case flight.FlightUnavailableError():
            return _unreachable(text, location)
        case flight.FlightServerError() if STREAM_LOST in text:
            what = "data was damaged on its way" if DAMAGED in text else "the connection was lost"
            return TransportClosed(what, where=location, hint="Connect again")
        case flight.FlightTimedOutError():
            return TransportTimeout("the server did not answer in time", where=location, hint="Allow a longer timeout")
        case flight.FlightCancelledError():
            return TransportClosed("the call was cancelled", where=location)
        case pa.ArrowKeyError():
            return parsed(_class_named(str(error), UnknownName), text)
        case pa.ArrowInvalid() if text == CLOSED_MEANWHILE:
            return TransportClosed("the connection was closed meanwhile", where=location, hint="Connect again")
        case pa.ArrowInvalid():
            return parsed(_class_named(str(error), RequestError), text)
        case pa.ArrowNotImplementedError():
            return RequestError("the server does not support this call", where=location, hint=text)
        case flight.FlightUnauthenticatedError():
            return Unauthenticated(text, where=location)
        case flight.FlightUnauthorizedError():
            return Forbidden(text, where=location)
        case OSError() if not isinstance(error, pa.ArrowException):
            return TransportClosed(f"the connection failed: {text}", where=location, hint="Connect again")
    return FastFlightError(text, where=location)


def _class_named(text: str, default: type[FastFlightError]) -> type[FastFlightError]:
    raised = RAISED_BY_SERVER.search(text)
    return CLASS_OF_NAME.get(raised[1], default) if raised else default


def _unreachable(text: str, location: str) -> TransportError:
    for words, what, hint in BY_TLS:
        if words in text:
            return NotReached(what, where=location, hint=hint)
    if CLOSED_AT_ONCE.search(text):
        return NotReached(
            "the server ended the connection before it said anything",
            where=location,
            hint="With grpc+tls:// it may want a client's certificate; with grpc:// it may want TLS: use grpc+tls://",
        )
    if any(words in text for words in NEVER_CONNECTED):
        return no_server(location)
    return TransportClosed("the server went away", where=location, hint="Connect again")


def _first_part(text: str) -> str:
    ends = [position for mark in APPENDED_BY_ARROW if (position := text.find(mark)) >= 0]
    return text[: min(ends)] if ends else text
