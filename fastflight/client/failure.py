"""Turns Flight's errors, and what a server says of them, into the typed errors of `fastflight.errors`.

Every call into Flight runs within `typed_errors(location)`, which raises a `FastFlightError` instead. A fastflight
server describes its errors as JSON in `extra_info`: code, what, where, hint and the class's own attributes. Flight does
not transport it for INVALID_ARGUMENT and NOT_FOUND, but only the message, followed in Arrow's details by the name of
the class: `parsed` splits the message into `where`, `what` and `hint` at its punctuation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyarrow import flight

from fastflight.errors import (
    BusyError,
    DataError,
    DeviceError,
    DeviceException,
    FastFlightError,
    FileMissing,
    Forbidden,
    QueryLimit,
    RequestError,
    ResourceExhausted,
    SequenceConflict,
    TransportClosed,
    TransportError,
    TransportTimeout,
    Unauthenticated,
    UnknownName,
    VersionConflict,
)


class NotReached(TransportError):
    """No connection was made. No server has begun the request, so it may be sent to another one."""


def _all_classes(root: type[FastFlightError]) -> Iterator[type[FastFlightError]]:
    yield root
    for child in root.__subclasses__():
        yield from _all_classes(child)


# Only the classes of `fastflight.errors`: subclasses elsewhere (`NotReached`) share the code of their base class.
CLASS_OF_CODE = {cls.code: cls for cls in _all_classes(FastFlightError) if cls.__module__ == FastFlightError.__module__}
# Its constructor needs sequence numbers, which a description does not carry.
CLASS_OF_CODE[SequenceConflict.code] = BusyError
# Classes that can be built from a text alone.
CLASS_OF_NAME = {
    cls.__name__: cls for cls in (RequestError, QueryLimit, UnknownName, VersionConflict, DataError, FileMissing)
}


def no_server(location: str) -> NotReached:
    """Return the error for a location where nothing listens."""
    return NotReached("no server answers", where=location, hint="Is it running? Start it with `fastflight serve`")


def parsed(cls: type[FastFlightError], text: str) -> FastFlightError:
    """Parse "where: what. Hint", the text of our errors. `what` is the whole text if the parts do not add up to it."""
    head, stop, hint = text.partition(". ")
    where, colon, what = head.rpartition(": ")
    if not where or where.count("'") % 2:  # the colon is inside a quoted name
        where, what = "", head
    error = cls(what, where=where, hint=hint)
    return error if str(error) == text else cls(text)


def described(extra_info: bytes | None) -> FastFlightError | None:
    """Return the error that the server described, or None."""
    if not extra_info:
        return None
    try:
        return of_description(json.loads(extra_info))
    except (ValueError, RecursionError):
        return None


def of_description(fields: Any) -> FastFlightError | None:
    """Build the error from a description made by `service.failure`. None if `fields` is not a description."""
    if not isinstance(fields, dict) or "what" not in fields:
        return None
    cls = CLASS_OF_CODE.get(str(fields.get("code")), FastFlightError)
    arguments: dict[str, Any] = {"where": str(fields.get("where", "")), "hint": str(fields.get("hint", ""))}
    if issubclass(cls, DeviceException):
        arguments |= {"kind": str(fields.get("kind", "")), "traceback": str(fields.get("traceback", ""))}
    elif issubclass(cls, ResourceExhausted):
        return _exhausted(fields, arguments)
    elif issubclass(cls, BusyError):
        arguments |= {"holder": str(fields.get("holder", ""))}
    elif issubclass(cls, QueryLimit):
        size = fields.get("size")
        arguments |= {"limit": str(fields.get("limit", "")), "size": size if isinstance(size, int | float) else 0.0}
    elif issubclass(cls, DeviceError):
        arguments |= {"errno": str(fields.get("errno", ""))}
    return cls(str(fields["what"]), **arguments)


def _exhausted(fields: dict[str, Any], arguments: dict[str, Any]) -> FastFlightError:
    try:
        limit, seconds = int(fields.get("limit", 0)), float(fields.get("retry_after_seconds", 0))
    except (TypeError, ValueError, OverflowError):
        return BusyError(str(fields["what"]), **arguments)
    scope = str(fields.get("scope", ""))
    return ResourceExhausted(str(fields["what"]), scope=scope, limit=limit, retry_after_seconds=seconds, **arguments)


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
