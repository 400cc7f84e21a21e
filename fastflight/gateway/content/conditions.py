"""The conditions of a request (RFC 9110, 13) and the range that it wants (14): which version of a file, and what of it.

A request is judged against what the board says of the file while the file is held, so that an entity tag, a size and
the bytes that follow are of one version.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from fastflight.gateway.errors import HttpRefusal

# RFC 9110, 8.8.3.
_ETAG = re.compile(r'(W/)?("[\x21\x23-\x7e\x80-\xff]*")')
# One range: first and last position, or how many bytes of the end.
_RANGE = re.compile(r"bytes=(?:(\d{1,15})-(\d{0,15})|-(\d{1,15}))", re.IGNORECASE)
ANY = "*"


def matches(field: str, etag: str, *, weak: bool = False) -> bool:
    """Whether `etag` (empty: there is none) of something that exists is in a list of entity tags, or that is `*`.

    `weak`: tags that are marked as weak count, too.
    """
    if field.strip() == ANY:
        return True
    return etag != "" and any(tag == etag and (weak or not mark) for mark, tag in _ETAG.findall(field))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a request for a file gets: a status, and the bytes from `start` up to `stop`."""

    status: int
    start: int
    stop: int


class Conditions:
    """Those of one request. `field` gives a header's value, several joined by commas, or an empty text."""

    def __init__(self, method: str, field: Callable[[str], str]) -> None:
        self._match = field("if-match")
        self._none_match = field("if-none-match")
        self._if_range = field("if-range").strip()
        self._reads = method in ("GET", "HEAD")
        self.looks_only = method == "HEAD"
        # Ranges are for GET alone. What is not one range is not heeded (RFC 9110, 14.2).
        self._range = _RANGE.fullmatch(field("range").strip()) if method == "GET" else None
        if self._range is not None and self._range[2] and int(self._range[2]) < int(self._range[1]):
            self._range = None

    def __bool__(self) -> bool:
        """Whether there are any that concern whether the request is carried out."""
        return bool(self._match or self._none_match)

    @property
    def guess(self) -> tuple[int, int | None]:
        """Offset and limit of what is probably wanted; a limit of 0 where that takes a look at the file first."""
        if self.looks_only or self or (self._range is not None and self._range[3]):
            return 0, 0
        if self._range is None or not self._resumes_safely:
            return 0, None
        first = int(self._range[1])
        return first, int(self._range[2]) - first + 1 if self._range[2] else None

    def check(self, etag: str, *, exists: bool = True) -> bool:
        """Whether the client has this version already. `HttpRefusal` with 412 where a condition does not hold."""
        if self._match and not (exists and matches(self._match, etag)):
            raise _failed("If-Match")
        if not self._none_match or not exists or not matches(self._none_match, etag, weak=True):
            return False
        if not self._reads:
            raise _failed("If-None-Match")
        return True

    def judge(self, size: int, etag: str) -> Verdict:
        """Which part of a file of `size` bytes answers the request; `HttpRefusal` if a condition or range fails."""
        if self.check(etag):
            return Verdict(304, 0, 0)
        if self.looks_only:
            return Verdict(200, 0, size)
        # Without an entity tag nobody can tell whether two parts are of one version.
        current = not self._if_range or (self._if_range != ANY and matches(self._if_range, etag))
        if self._range is None or not etag or not current:
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
    def _resumes_safely(self) -> bool:
        """False for "the rest" without a word of which version the beginning was: two would be joined unseen.

        This is what `curl -C -` sends, which says so when it gets the whole.
        """
        assert self._range is not None
        is_rest = self._range[1] is not None and int(self._range[1]) > 0 and not self._range[2]
        return not is_rest or bool(self._if_range) or (bool(self._match) and self._match.strip() != ANY)


def _failed(where: str) -> HttpRefusal:
    return HttpRefusal(
        412, "the file is not the version that was asked for", where=where, hint="Read it again, then decide"
    )
