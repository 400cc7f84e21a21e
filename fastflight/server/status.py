"""Maps errors to Flight errors, by one table for every RPC.

An error of `fastflight.errors` keeps its text. `extra_info` carries the same as JSON (`code`, `what`, `where`, `hint`
and the error's own attributes), on the Flight classes that can carry it. Every other error becomes "internal error"
with the request's id. Its traceback goes to the server's log under that id and never to the client.
`docs/decisions/0002-status-codes-without-tracebacks.md` says how INVALID_ARGUMENT and NOT_FOUND are raised without
sending a traceback.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.flight as flight

from fastflight.concurrency import failure_of
from fastflight.errors import (
    AccessError,
    BusyError,
    DataError,
    DeviceError,
    FastFlightError,
    FileMissing,
    ProtocolError,
    RequestError,
    SourceError,
    Stopped,
    StorageError,
    TransportError,
    TransportTimeout,
    Unauthenticated,
    UnknownName,
    Unsupported,
)
from fastflight.runtime.failure import error_json, log_unexpected
from fastflight.runtime.tracing import Trace

# Both travel in gRPC trailers, which peers limit to 8 KiB. Base64 makes extra_info a third longer. Percent-encoding
# makes up to 3 bytes of each byte of the text, which Arrow sends twice.
MAX_EXTRA_INFO_BYTES = 2000
MAX_TEXT_BYTES = 800


class _Untraceable(Exception):
    """An exception that Arrow cannot format. Arrow then sends the type's name instead of a traceback."""

    @property
    def __cause__(self) -> BaseException | None:  # type: ignore[override]
        raise AttributeError("not to be formatted")


class InvalidArgument(_Untraceable, pa.ArrowInvalid):  # type: ignore[misc]
    """Raise this from a handler to end the call with the status INVALID_ARGUMENT."""


class NotFound(_Untraceable, pa.ArrowKeyError):  # type: ignore[misc]
    """Raise this from a handler to end the call with the status NOT_FOUND."""


class Unimplemented(_Untraceable, pa.ArrowNotImplementedError):  # type: ignore[misc]
    """Raise this from a handler to end the call with the status UNIMPLEMENTED."""


class Unknown(_Untraceable):
    """Raise this from a handler to end the call with the status UNKNOWN."""


# The first class that matches counts, so subclasses come before their base classes.
STATUS: tuple[tuple[type[FastFlightError], type[Exception]], ...] = (
    (UnknownName, NotFound),
    (FileMissing, NotFound),
    (Unsupported, Unimplemented),
    (RequestError, InvalidArgument),
    (Unauthenticated, flight.FlightUnauthenticatedError),
    (AccessError, flight.FlightUnauthorizedError),
    (DataError, InvalidArgument),
    (BusyError, flight.FlightUnavailableError),
    (Stopped, flight.FlightUnavailableError),
    (TransportTimeout, flight.FlightTimedOutError),
    (TransportError, flight.FlightUnavailableError),
    (DeviceError, flight.FlightServerError),
    (SourceError, flight.FlightServerError),
    (StorageError, flight.FlightServerError),
    (ProtocolError, flight.FlightInternalError),
)


def flight_error(error: BaseException, trace: Trace | None = None) -> Exception:
    """Return the exception to raise `from None` in a handler instead of `error`; `trace` as for `log_unexpected`."""
    error = failure_of(error)
    for kind, status in STATUS:
        if isinstance(error, kind):
            if issubclass(status, _Untraceable):
                return _named(status, type(error))(_text(error))
            mapped_error: Exception = status(_text(error), error_json(error, MAX_EXTRA_INFO_BYTES))
            return mapped_error
    if isinstance(error, _Untraceable) or (isinstance(error, flight.FlightError) and error.extra_info):
        return error  # already mapped, by the generator of an exchange's messages
    text = log_unexpected(error, trace)
    internal: Exception = flight.FlightInternalError(text, json.dumps({"code": "internal", "what": text}).encode())
    return internal


class MappedErrors:
    """The context of a handler's body: errors that leave it become Flight errors."""

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None and not isinstance(error, GeneratorExit):
            raise flight_error(error) from None


@contextmanager
def mapped_plainly() -> Iterator[None]:
    """As `MappedErrors`, for get_schema. pyarrow would send the Flight errors of this call with a traceback.

    So they become an error with the status UNKNOWN and the same text.
    """
    try:
        with MappedErrors():
            yield
    except flight.FlightError as error:
        raise _named(Unknown, type(error))(str(error)) from None


def _text(error: FastFlightError) -> str:
    text = str(error).encode(errors="replace")
    return text.decode() if len(text) <= MAX_TEXT_BYTES else text[:MAX_TEXT_BYTES].decode(errors="ignore") + "..."


def _named(status: type[Exception], kind: type[Exception]) -> type[Exception]:
    """Return a subclass of `status` with the name of our error, because Arrow sends the type's name to the client."""
    return type(kind.__name__, (status,), {})
