"""Flight's errors as the typed errors of `fastflight.errors`.

`typed_errors(location)` surrounds every call into Flight; what leaves it is a `FastFlightError`. A fastflight server
describes its errors in `extra_info` (JSON: code, what, where, hint and the class's own attributes). Flight carries none
for INVALID_ARGUMENT and NOT_FOUND: there the first part of the text is the message, of which the parts are told apart
by its form, and the class's name follows it.
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
    RequestError,
    ResourceExhausted,
    SequenceConflict,
    TransportClosed,
    TransportError,
    TransportTimeout,
    Unauthenticated,
    UnknownName,
)

# Arrow and gRPC append what they know to a message, a traceback of the server's included: none of it is for a reader.
APPENDED_BY_ARROW = (". Detail:", ". gRPC client debug context:", ". Client context:")
# The class that the server raised, as Arrow names it.
RAISED_BY_SERVER = re.compile(r"Detail: Python exception: (\w+)")
# gRPC's words for a connection that was never made; those for one that was lost differ by platform.
NEVER_CONNECTED = (
    "failed to connect",
    "errors resolving",
    "DNS resolution failed",
    "connections to all backends failing",
)
# OpenSSL's and gRPC's words for what is wrong with TLS.
BY_TLS = (
    (
        "certificate verify failed",
        "the server's certificate is not one of those that are trusted here",
        "Give the certificate of its CA: --tls-ca FILE, or Credentials(ca=...)",
    ),
    (
        "is not in peer certificate",
        "the server's certificate is for another name",
        "Use a name that it has: those that were given to `fastflight cert server`",
    ),
    ("wrong version number", "the server does not speak TLS", "Use grpc:// instead of grpc+tls://"),
)
# A peer that expects TLS, or a client's certificate, says nothing more than this of one that brings none.
CLOSED_AT_ONCE = re.compile(r"failed to connect to all addresses; last error: UNAVAILABLE: .*Socket closed")

# gRPC's words for a stream whose connection ended under it, and, where TLS ended that, for why.
STREAM_LOST, DAMAGED = "Stream removed", "TSI_DATA_CORRUPTED"


class NotReached(TransportError):
    """No connection was made: whatever was asked, nobody has begun it, and it may be asked of another."""


def _classes(root: type[FastFlightError]) -> Iterator[type[FastFlightError]]:
    yield root
    for child in root.__subclasses__():
        yield from _classes(child)


# Those that may be made of a description alone: others give a code of these to what only they know of.
CLASS_OF_CODE = {cls.code: cls for cls in _classes(FastFlightError) if cls.__module__ == FastFlightError.__module__}
# It is made of numbers, of which a description has only the text.
CLASS_OF_CODE[SequenceConflict.code] = BusyError
# Those that a text is enough for.
CLASS_OF_NAME = {cls.__name__: cls for cls in (RequestError, UnknownName, DataError, FileMissing)}


@contextmanager
def typed_errors(location: str) -> Iterator[None]:
    """Raise Flight's errors as ours. `location` is the server's address, for those that never reached it."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise typed(error, location) from error


def typed(error: BaseException, location: str) -> FastFlightError:
    """The typed error that a Flight error stands for."""
    described = _described(getattr(error, "extra_info", None))
    if described is not None:
        return described
    text = _first_part(str(error))
    match error:
        case flight.FlightUnavailableError():
            return _unreachable(text, location)
        case flight.FlightServerError() if STREAM_LOST in text:
            what = "what came was damaged on its way" if DAMAGED in text else "the connection was lost"
            return TransportClosed(what, where=location, hint="Connect again")
        case flight.FlightTimedOutError():
            return TransportTimeout("the server did not answer in time", where=location, hint="Allow a longer timeout")
        case flight.FlightCancelledError():
            return TransportClosed("the call was cancelled", where=location)
        case pa.ArrowKeyError():
            return _parted(_named(str(error), UnknownName), text)
        case pa.ArrowInvalid():
            return _parted(_named(str(error), RequestError), text)
        case pa.ArrowNotImplementedError():
            return RequestError("the server does not support this call", where=location, hint=text)
        case flight.FlightUnauthenticatedError():
            return Unauthenticated(text, where=location)
        case flight.FlightUnauthorizedError():
            return Forbidden(text, where=location)
        case OSError() if not isinstance(error, pa.ArrowException):
            return TransportClosed(f"the connection failed: {text}", where=location, hint="Connect again")
    return FastFlightError(text, where=location)


def _named(text: str, otherwise: type[FastFlightError]) -> type[FastFlightError]:
    raised = RAISED_BY_SERVER.search(text)
    return CLASS_OF_NAME.get(raised[1], otherwise) if raised else otherwise


def _parted(cls: type[FastFlightError], text: str) -> FastFlightError:
    """The error whose text this is: "where: what. Hint", as ours make it. Put together again it is the same."""
    head, stop, hint = text.partition(". ")
    where, colon, what = head.rpartition(": ")
    if not where or where.count("'") % 2:  # a colon within what is quoted
        where, what = "", head
    error = cls(what, where=where, hint=hint)
    return error if str(error) == text else cls(text)


def _described(extra_info: bytes | None) -> FastFlightError | None:
    """The error that the server described, or None when it described none."""
    if not extra_info:
        return None
    try:
        return of_description(json.loads(extra_info))
    except (ValueError, RecursionError):
        return None


def of_description(given: Any) -> FastFlightError | None:
    """The error in a description, as `service.failure` makes one; None where it is none."""
    if not isinstance(given, dict) or "what" not in given:
        return None
    cls = CLASS_OF_CODE.get(str(given.get("code")), FastFlightError)
    arguments: dict[str, Any] = {"where": str(given.get("where", "")), "hint": str(given.get("hint", ""))}
    if issubclass(cls, DeviceException):
        arguments |= {"kind": str(given.get("kind", "")), "traceback": str(given.get("traceback", ""))}
    elif issubclass(cls, ResourceExhausted):
        return _exhausted(given, arguments)
    elif issubclass(cls, BusyError):
        arguments |= {"holder": str(given.get("holder", ""))}
    elif issubclass(cls, DeviceError):
        arguments |= {"errno": str(given.get("errno", ""))}
    return cls(str(given["what"]), **arguments)


def _exhausted(given: dict[str, Any], arguments: dict[str, Any]) -> FastFlightError:
    try:
        limit, seconds = int(given.get("limit", 0)), float(given.get("retry_after_seconds", 0))
    except (TypeError, ValueError, OverflowError):
        return BusyError(str(given["what"]), **arguments)
    scope = str(given.get("scope", ""))
    return ResourceExhausted(str(given["what"]), scope=scope, limit=limit, retry_after_seconds=seconds, **arguments)


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
        return NotReached("no server answers", where=location, hint="Is it running? Start it with `fastflight serve`")
    return TransportClosed("the server went away", where=location, hint="Connect again")


def _first_part(text: str) -> str:
    ends = [position for mark in APPENDED_BY_ARROW if (position := text.find(mark)) >= 0]
    return text[: min(ends)] if ends else text
