"""A cache of small answers that are asked for often: encoded once, valid for `LIFETIME_SECONDS`, one for each caller.

Requests for an expired answer share one new making of it. Each answer has an ETag.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from fastflight.gateway.asgi import EMPTY, Header, Scope, Send
from fastflight.gateway.callers import ANYONE, Caller
from fastflight.gateway.content.conditions import matches
from fastflight.runtime import tracing as trace

# How old a cached answer may be. A page that asks ten times a second sees every change.
LIFETIME_SECONDS = 0.1
# Callers for whom an answer is cached; the oldest entry makes room for more.
MAX_KEPT_FOR = 256
# Headers whose requests need an answer of their own: a 304, or one with the request's own id or trace.
SPECIAL = frozenset((b"if-none-match", b"x-request-id", b"traceparent"))


@dataclass(frozen=True, slots=True)
class SmallContent:
    """The body of a small answer, and its content type."""

    body: bytes
    media_type: bytes = b"application/json"


# Makes the answer for a caller.
Make = Callable[[Caller], Awaitable[SmallContent]]


class Small:
    """A small answer, cached for each caller: no caller gets the answer of another one."""

    def __init__(self, make: Make, more: Iterable[Header] = ()) -> None:
        """`more`: additional headers."""
        self._make = make
        self._more = tuple(more)
        self._anyone = self._new(ANYONE)
        self._others: dict[Caller, CachedAnswer] = {}

    def of(self, caller: Caller) -> CachedAnswer:
        """Return the answer for `caller`; not cached if the caller holds a token, which must not stay in memory."""
        if caller is ANYONE:
            return self._anyone
        if caller.authorization:
            return self._new(caller)
        cached = self._others.get(caller)
        if cached is None:
            if len(self._others) >= MAX_KEPT_FOR:
                del self._others[next(iter(self._others))]
            cached = self._others[caller] = self._new(caller)
        return cached

    def _new(self, caller: Caller) -> CachedAnswer:
        return CachedAnswer(lambda: self._make(caller), more=self._more)


class CachedAnswer:
    """One small answer, as encoded ASGI messages and as bytes."""

    def __init__(
        self,
        make: Callable[[], Awaitable[SmallContent]],
        clock: Callable[[], float] = time.monotonic,
        more: tuple[Header, ...] = (),
    ) -> None:
        self._make = make
        self._more = more
        self._clock = clock
        self._fresh_until = 0.0
        self._making: asyncio.Task[None] | None = None
        self._etag = b""
        self._start: dict[str, Any] = {}
        self._body: dict[str, Any] = {}
        self._unchanged: dict[str, Any] = {}
        self._whole = b""

    async def answer(self, scope: Scope, send: Send) -> None:
        """Send the answer, or 304 if the client has it. Raises what making it raises."""
        if self._clock() >= self._fresh_until:
            await self._renew()
        for name, value in scope["headers"]:
            if name == b"if-none-match" and matches(value.decode("latin-1"), self._etag.decode(), weak=True):
                await send(self._unchanged)
                await send(EMPTY)
                return
        start, body = self._start, self._body  # while this is sent, a new answer may replace them
        await send(start)
        await send(EMPTY if scope["method"] == "HEAD" else body)

    def ready(self, headers: Iterable[Header]) -> bytes | None:
        """Return head (without its first line) and body; None if expired, or if `headers` need another answer."""
        if self._clock() >= self._fresh_until:
            return None
        for name, _ in headers:
            if name in SPECIAL:
                return None
        return b"x-request-id: %b\r\n%b" % (trace.new_request_id(), self._whole)

    async def _renew(self) -> None:
        """Make a new answer, or wait for the one in the making. A client that leaves does not cancel it."""
        if self._making is None:
            self._making = asyncio.ensure_future(self._make_messages())
            self._making.add_done_callback(self._finish_making)
        await asyncio.shield(self._making)

    def _finish_making(self, making: asyncio.Task[None]) -> None:
        self._making = None
        if not making.cancelled():
            making.exception()  # fetched here, as asyncio logs an exception that nobody has fetched

    async def _make_messages(self) -> None:
        content = await self._make()
        self._etag = b'"%s"' % hashlib.sha256(content.body).hexdigest()[:20].encode()
        lasting: list[Header] = [(b"etag", self._etag), (b"cache-control", b"private, no-cache"), *self._more]
        described = [(b"content-type", content.media_type), (b"content-length", b"%d" % len(content.body)), *lasting]
        self._start = {"type": "http.response.start", "status": 200, "headers": described}
        self._body = {"type": "http.response.body", "body": content.body}
        self._unchanged = {"type": "http.response.start", "status": 304, "headers": lasting}
        self._whole = b"".join(b"%b: %b\r\n" % header for header in described) + b"\r\n" + content.body
        self._fresh_until = self._clock() + LIFETIME_SECONDS
