"""Checks of what a server sends as JSON: results of actions, acknowledgements, metadata of rows.

The server may have another version, or send anything at all. Code that takes its messages apart runs within
`validating`, which turns `TypeError`, `KeyError` and the like into a `ProtocolError`. `text`, `whole` and `content`
check one value each and raise such errors, so call them within `validating`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fastflight.errors import ProtocolError

# A message about rows, which comes between them.
Note = Mapping[str, Any]
# Keys of the messages that may come between rows. A message with none of these keys is the server's summary.
NOTES = ("gap", "recording", "failure", "digests", "mostly_rejected", "progress")
# What such messages are called in errors.
ABOUT_ROWS = "what the server says of its rows"
# Sizes, row counts and sequence numbers: Arrow holds them in 64 bits.
WHOLE = range(2**63)


@contextmanager
def validating(what: str, location: str = "") -> Iterator[None]:
    """Raise `ProtocolError` if the block finds that something in `what` is missing or has the wrong type."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise ProtocolError(
            f"{what} is not understood", where=location, hint="Is the server of the same version?"
        ) from error


def value(body: bytes, what: str, location: str) -> Any:
    """Decode the JSON in `body`. Raises `ProtocolError` if it is none."""
    with validating(what, location):
        return json.loads(body)


def message(body: bytes, what: str, location: str) -> dict[str, Any]:
    """Decode the JSON object in `body`. Raises `ProtocolError` if it is none."""
    decoded = value(body, what, location)
    if not isinstance(decoded, dict):
        raise ProtocolError(f"{what} is not a JSON object", where=location)
    return decoded


def is_note(content: Note) -> bool:
    """Whether a message about rows is a note. If not, it is the server's summary, the last message of an answer."""
    return any(name in content for name in NOTES)


def digests_in(note: Note) -> list[str]:
    """Return the digests of the files that the server has sent. Older servers send none."""
    with validating("the digests of files"):
        return [text(each) for each in note.get("digests", ())]


def text(item: Any) -> str:
    """Return `item` if it is a string that UTF-8 can encode. Otherwise raise `TypeError` or `UnicodeEncodeError`.

    JSON may hold half a surrogate pair, which UTF-8 cannot encode.
    """
    if not isinstance(item, str):
        raise TypeError("not text")
    item.encode()
    return item


def whole(item: Any) -> int:
    """Return `item` if it is an integer from 0 to 2**63 - 1. Otherwise raise `TypeError`."""
    if type(item) is not int or item not in WHOLE:
        raise TypeError("not a number of something")
    return item


def content(item: Any) -> bytes:
    """Return `item` if it is bytes. Otherwise raise `TypeError`."""
    if not isinstance(item, bytes):
        raise TypeError("not bytes")
    return item
