"""Chooses the format of an answer: by `?format=`, else by the `Accept` header, else the route's default."""

from __future__ import annotations

from collections.abc import Sequence

from fastflight.errors import RequestError, nearest
from fastflight.gateway.content.formats import MEDIA_TYPES
from fastflight.gateway.errors import HttpRefusal

# Media ranges of an `Accept` header that are read; browsers send a handful.
MAX_ACCEPTED = 32


def choose_format(query: str | None, accept: str, offered: Sequence[str]) -> str:
    """Return one of the formats `offered`; the first one is the default.

    Raises `RequestError` for an unknown `query`, and `HttpRefusal` (406) if the client accepts none of them.
    """
    if query is not None:
        if query not in offered:
            raise RequestError(f"{query!r} is not a format here", where="format", hint=nearest(query, offered))
        return query
    ranges = _ranges(accept)
    if not ranges:
        return offered[0]
    best, weight = "", 0.0
    for name in offered:
        accepted_quality = max((quality for range_, quality in ranges if _fits(name, range_)), default=0.0)
        if accepted_quality > weight:
            best, weight = name, accepted_quality
    if not best:
        known = ", ".join(media for media, name in MEDIA_TYPES.items() if name in offered)
        raise HttpRefusal(406, f"the rows are not available as {accept[:80]!r}", where="Accept", hint=f"Known: {known}")
    return best


def _ranges(accept: str) -> list[tuple[str, float]]:
    found = []
    for part in accept.split(",")[:MAX_ACCEPTED]:
        range_, *parameters = (text.strip().lower() for text in part.split(";"))
        quality = 1.0
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip() == "q":
                try:
                    quality = float(value)
                except ValueError:
                    quality = 0.0
        if range_:
            found.append((range_, quality))
    return found


def _fits(name: str, range_: str) -> bool:
    if range_ == "*/*":
        return True
    kind, _, subtype = range_.partition("/")
    return any(
        media == range_ or (subtype == "*" and media.startswith(f"{kind}/"))
        for media, meant in MEDIA_TYPES.items()
        if meant == name
    )
