"""Evaluates conditional requests (RFC 9110, 13) and range requests (14) for a file.

The caller gives the size, and the entity tag if `wants_tag`, that the board reports while the device is held for the
answer. So both belong to the same version as the bytes that follow. `tagged` makes small answers with an entity tag, so
that a client gets the same one only once.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from fastflight.gateway.errors import HttpRefusal
from fastflight.service.versions import ANY, matches, version_conflict

# A single range: first and last position, or the number of bytes at the end.
_RANGE = re.compile(r"bytes=(?:(\d{1,15})-(\d{0,15})|-(\d{1,15}))", re.IGNORECASE)
CACHE_CONTROL = {"cache-control": "private, no-cache"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """How to answer a request for a file: a status, and the bytes from `start` up to but not including `stop`."""

    status: int
    start: int
    stop: int


class Conditions:
    """The conditions and range of one request. `field` returns a header, its values joined by commas, or `""`."""

    def __init__(self, method: str, field: Callable[[str], str]) -> None:
        self._match = field("if-match")
        self._none_match = field("if-none-match")
        self._if_range = field("if-range").strip()
        self.looks_only = method == "HEAD"
        # Only GET has ranges. Anything but a single valid range is ignored (RFC 9110, 14.2).
        self._range = _RANGE.fullmatch(field("range").strip()) if method == "GET" else None
        if self._range is not None and self._range[2] and int(self._range[2]) < int(self._range[1]):
            self._range = None

    @property
    def wants_tag(self) -> bool:
        """Whether the answer needs the file's entity tag, for which the board reads all of the file.

        A part that has two ends, or is the last bytes, and is asked for without a version, does without: no client may
        join such parts (RFC 9110, 15.3.7.3).
        """
        return self._range is None or self._reaches_end or bool(self._match or self._none_match or self._if_range)

    @property
    def guess(self) -> tuple[int, int | None]:
        """Offset and limit of the first read, before size and tag are known; a limit of 0 to get only these.

        It assumes that If-Match and If-Range hold, and that the client of an If-None-Match has the present version.
        """
        if self.looks_only or self._none_match or (self._range is not None and self._range[3]):
            return 0, 0
        if self._range is None or not self._resumes_safely:
            return 0, None
        first = int(self._range[1])
        return first, int(self._range[2]) - first + 1 if self._range[2] else None

    def judge(self, size: int, etag: str) -> Verdict:
        """Return which part of a file of `size` bytes to send; raise an error if a condition or range fails.

        An empty `etag`: the file has none, or none is wanted (`wants_tag`).
        """
        if self._match and not matches(self._match, etag):
            raise version_conflict("If-Match")
        if self._none_match and matches(self._none_match, etag, weak=True):
            return Verdict(304, 0, 0)
        if self.looks_only:
            return Verdict(200, 0, size)
        current = not self._if_range or (self._if_range != ANY and matches(self._if_range, etag))
        # Without an entity tag a client cannot know whether two parts belong to the same version.
        unknown = self.wants_tag and not etag
        if self._range is None or unknown or not current:
            return Verdict(200, 0, size)
        first, last, suffix = self._range.groups()
        if suffix:
            start, stop = max(0, size - int(suffix)), size
            if int(suffix) and not size:
                return Verdict(200, 0, 0)
        else:
            start, stop = int(first), min(int(last) + 1, size) if last else size
        if start >= size:
            raise HttpRefusal(
                416,
                f"the file has {size} bytes",
                where="Range",
                hint="Ask for bytes=START-END below that",
                headers=[(b"content-range", b"bytes */%d" % size)],
            )
        return Verdict(206, start, stop) if self._resumes_safely else Verdict(200, 0, size)

    @property
    def _reaches_end(self) -> bool:
        """Whether the range has a first byte and no last one."""
        return self._range is not None and self._range[1] is not None and not self._range[2]

    @property
    def _resumes_safely(self) -> bool:
        """False for the rest of a file without a condition: the client could join parts of two versions unnoticed.

        `curl -C -` sends this. It reports an error when it gets the whole file instead.
        """
        assert self._range is not None
        is_rest = self._reaches_end and int(self._range[1]) > 0
        return not is_rest or bool(self._if_range) or (bool(self._match) and self._match.strip() != ANY)


def tagged(
    request: Request, body: bytes, media_type: str = "application/json", headers: dict[str, str] = CACHE_CONTROL
) -> Response:
    """Return `body` with its ETag and these headers, or 304 if the client has it."""
    etag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
    headers = {**headers, "etag": etag}
    if matches(", ".join(request.headers.getlist("if-none-match")), etag, weak=True):
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type=media_type)
