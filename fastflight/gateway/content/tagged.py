"""Small answers that are made for each request and have an entity tag, so that a client gets the same one only once."""

from __future__ import annotations

import hashlib

from starlette.requests import Request
from starlette.responses import Response

from fastflight.service.versions import matches

CACHE_CONTROL = {"cache-control": "private, no-cache"}


def tagged(
    request: Request, body: bytes, media_type: str = "application/json", headers: dict[str, str] = CACHE_CONTROL
) -> Response:
    """Return `body` with its ETag and these headers, or 304 if the client has it."""
    etag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
    headers = {**headers, "etag": etag}
    if matches(", ".join(request.headers.getlist("if-none-match")), etag, weak=True):
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type=media_type)
