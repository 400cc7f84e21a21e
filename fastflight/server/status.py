"""Errors as Flight errors: one table, for every RPC.

A typed error keeps its text. `extra_info` carries the same as JSON (`code`, `what`, `where`, `hint` and the error's own
attributes), on the classes that can carry it. Anything else is "internal error" with the request's id: the traceback
goes to the server's log under that id and never to the peer. How INVALID_ARGUMENT and NOT_FOUND are made without
leaking one: `docs/decisions/0002-status-codes-without-tracebacks.md`.
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
    Stopped,
    StorageError,
    TransportError,
    TransportTimeout,
    Unauthenticated,
    UnknownName,
)
from fastflight.runtime.failure import described, numbered
from fastflight.runtime.tracing import Trace

# Both travel in gRPC trailers, of which peers take 8 KiB: base64 makes 4/3 of extra_info, and percent-encoding up to 3
# bytes of one in the text, which Arrow sends twice.
MAX_EXTRA_INFO_BYTES = 2000
MAX_TEXT_BYTES = 800


class _Untraceable(Exception):
    """An exception that Arrow cannot format: it falls back to the type's name instead of sending a traceback."""

    @property
    def __cause__(self) -> BaseException | None:  # type: ignore[override]
        raise AttributeError("not to be formatted")


class InvalidArgument(_Untraceable, pa.ArrowInvalid):  # type: ignore[misc]
    """INVALID_ARGUMENT."""


class NotFound(_Untraceable, pa.ArrowKeyError):  # type: ignore[misc]
    """NOT_FOUND."""


class Unknown(_Untraceable):
    """UNKNOWN."""


# The first class that fits, so the special ones stand first.
STATUS: tuple[tuple[type[FastFlightError], type[Exception]], ...] = (
    (UnknownName, NotFound),
    (FileMissing, NotFound),
    (RequestError, InvalidArgument),
    (Unauthenticated, flight.FlightUnauthenticatedError),
    (AccessError, flight.FlightUnauthorizedError),
    (DataError, InvalidArgument),
    (BusyError, flight.FlightUnavailableError),
    (Stopped, flight.FlightUnavailableError),
    (TransportTimeout, flight.FlightTimedOutError),
    (TransportError, flight.FlightUnavailableError),
    (DeviceError, flight.FlightServerError),
    (StorageError, flight.FlightServerError),
    (ProtocolError, flight.FlightInternalError),
)


def flight_error(error: BaseException, trace: Trace | None = None) -> Exception:
    """What to raise from a handler in place of `error`, with `from None`; `trace` as for `numbered`."""
    error = failure_of(error)
    for kind, status in STATUS:
        if isinstance(error, kind):
            if issubclass(status, _Untraceable):
                return _named(status, type(error))(_text(error))
            mapped_error: Exception = status(_text(error), described(error, MAX_EXTRA_INFO_BYTES))
            return mapped_error
    if isinstance(error, _Untraceable) or (isinstance(error, flight.FlightError) and error.extra_info):
        return error  # the messages of an exchange are mapped by themselves
    text = numbered(error, trace)
    internal: Exception = flight.FlightInternalError(text, json.dumps({"code": "internal", "what": text}).encode())
    return internal


class _Mapped:
    """The context that `mapped` gives. Not a generator: every call passes through it."""

    __slots__ = ()

    def __enter__(self) -> None:
        """Nothing has been raised yet."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None and not isinstance(error, GeneratorExit):
            raise flight_error(error) from None


_MAPPED = _Mapped()


def mapped() -> _Mapped:
    """Around a handler's body: what leaves it is a Flight error."""
    return _MAPPED


@contextmanager
def mapped_plainly() -> Iterator[None]:
    """`mapped` for get_schema, from where pyarrow sends Flight's own errors with a traceback: they become UNKNOWN."""
    try:
        with mapped():
            yield
    except flight.FlightError as error:
        raise _named(Unknown, type(error))(str(error)) from None


def _text(error: FastFlightError) -> str:
    text = str(error).encode(errors="replace")
    return text.decode() if len(text) <= MAX_TEXT_BYTES else text[:MAX_TEXT_BYTES].decode(errors="ignore") + "..."


def _named(status: type[Exception], kind: type[Exception]) -> type[Exception]:
    """`status` under the name of our error: the type's name is what Arrow tells the client."""
    return type(kind.__name__, (status,), {})
