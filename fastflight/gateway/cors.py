"""What a browser wants to be told before a page of another origin gets an answer (fetch standard, CORS protocol).

Only origins that were allowed when serving are told anything, each that it is itself allowed: never all. There are no
cookies here.
"""

from __future__ import annotations

from collections.abc import Iterable

from fastflight.gateway.asgi import Header

METHODS = b"GET, HEAD, POST, PUT, DELETE"
# What the gateway's routes look at, of what a page may not send unasked.
ASKED = b"accept, authorization, content-type, if-match, if-none-match, if-range, range"
# What they answer with, of what a page may not read unasked.
ANSWERED = b"accept-ranges, content-disposition, content-range, etag, fastflight-path, retry-after"
# How long a browser need not ask again.
MAX_AGE_SECONDS = b"600"
VARY: Header = (b"vary", b"origin")


def shared(origin: bytes) -> list[Header]:
    """Headers of an answer that pages of `origin` may read."""
    return [(b"access-control-allow-origin", origin), (b"access-control-expose-headers", ANSWERED)]


def preflight(origin: bytes) -> list[Header]:
    """Headers of the answer to whether they may ask."""
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-allow-methods", METHODS),
        (b"access-control-allow-headers", ASKED),
        (b"access-control-max-age", MAX_AGE_SECONDS),
    ]


def is_preflight(method: str, headers: Iterable[Header]) -> bool:
    """Whether a browser asks whether it may ask."""
    return method == "OPTIONS" and any(name == b"access-control-request-method" for name, _ in headers)
