"""What a server says, as values: an action's results, acknowledgements, what it says beside rows.

It may be of another version, or say anything at all. Where its words are taken apart, `understood` stands around: what
does not fit is a `ProtocolError` there and then.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fastflight.errors import ProtocolError

# Sizes, rows and numbers of chunks, which Arrow has in 64 bits.
WHOLE = range(2**63)


@contextmanager
def understood(what: str, location: str = "") -> Iterator[None]:
    """Raise as a `ProtocolError` that something in `what` is missing, or is not what it should be."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise ProtocolError(
            f"{what} is not understood", where=location, hint="Is the server of the same version?"
        ) from error


def value(body: bytes, what: str, location: str) -> Any:
    """The JSON in `body`."""
    with understood(what, location):
        return json.loads(body)


def message(body: bytes, what: str, location: str) -> dict[str, Any]:
    """The object in `body`."""
    given = value(body, what, location)
    if not isinstance(given, dict):
        raise ProtocolError(f"{what} is not a JSON object", where=location)
    return given


def text(given: Any) -> str:
    """Text that can be written as UTF-8: JSON may hold half a character. For within `understood`, like the others."""
    if not isinstance(given, str):
        raise TypeError("not text")
    given.encode()
    return given


def whole(given: Any) -> int:
    """A number of something."""
    if type(given) is not int or given not in WHOLE:
        raise TypeError("not a number of something")
    return given


def content(given: Any) -> bytes:
    """Bytes of a file."""
    if not isinstance(given, bytes):
        raise TypeError("not bytes")
    return given
