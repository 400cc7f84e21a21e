"""Which of the formats a client is to get: `?format=` says it, else its `Accept` header, else the route's own."""

from __future__ import annotations

from collections.abc import Sequence

from fastflight.errors import RequestError, nearest
from fastflight.gateway.content.formats import MEDIA_TYPES
from fastflight.gateway.errors import HttpRefusal

# Browsers send a handful; more are not looked at.
MAX_ACCEPTED = 32


def chosen(query: str | None, accept: str, offered: Sequence[str]) -> str:
    """One of the formats `offered`, whose first is what a client gets that does not say."""
    if query is not None:
        if query not in offered:
            raise RequestError(f"{query!r} is not a format here", where="format", hint=nearest(query, offered))
        return query
    ranges = _ranges(accept)
    if not ranges:
        return offered[0]
    best, weight = "", 0.0
    for name in offered:
        liked = max((quality for range_, quality in ranges if _fits(name, range_)), default=0.0)
        if liked > weight:
            best, weight = name, liked
    if not best:
        known = ", ".join(media for media, name in MEDIA_TYPES.items() if name in offered)
        raise HttpRefusal(406, f"no rows in {accept[:80]!r}", where="Accept", hint=f"Known: {known}")
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
