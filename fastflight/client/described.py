"""Builds the typed errors that a server describes.

A fastflight server describes its errors in JSON: code, what, where, hint and the class's own attributes. Flight does
not transport this for INVALID_ARGUMENT and NOT_FOUND, but only the message, and beside it the name of the class:
`parsed` splits the message into `where`, `what` and `hint` at its punctuation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from fastflight.errors import (
    BusyError,
    DataError,
    DeviceError,
    DeviceException,
    FastFlightError,
    FileMissing,
    QueryLimit,
    RequestError,
    ResourceExhausted,
    SequenceConflict,
    TransportError,
    UnknownName,
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
CLASS_OF_NAME = {cls.__name__: cls for cls in (RequestError, QueryLimit, UnknownName, DataError, FileMissing)}


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


def of_description(given: Any) -> FastFlightError | None:
    """Build the error from a description made by `service.failure`. None if `given` is not a description."""
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
    elif issubclass(cls, QueryLimit):
        size = given.get("size")
        arguments |= {"limit": str(given.get("limit", "")), "size": size if isinstance(size, int | float) else 0.0}
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
