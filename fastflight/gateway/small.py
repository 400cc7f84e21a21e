"""Small answers that many ask for: kept as bytes for `LIFETIME_SECONDS`, for who asked.

One request at a time makes one anew; each has an ETag.
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

# How old a kept answer may be. A page that asks ten times a second sees every change.
LIFETIME_SECONDS = 0.1
# Callers for whom one small answer is kept; of more, the oldest goes.
MAX_KEPT_FOR = 256
# What has an answer of its own: one that says nothing has changed, or has the id that was given.
SPECIAL = frozenset((b"if-none-match", b"x-request-id", b"traceparent"))


@dataclass(frozen=True, slots=True)
class Made:
    """The content of a small answer."""

    body: bytes
    media_type: bytes = b"application/json"


# Makes a small answer anew, for who asks.
Make = Callable[[Caller], Awaitable[Made]]


class Small:
    """One small answer, kept for each caller: what one may see is never another's answer."""

    def __init__(self, make: Make, more: Iterable[Header] = ()) -> None:
        """`more`: headers beside its own."""
        self._make = make
        self._more = tuple(more)
        self._anyone = self._new(ANYONE)
        self._others: dict[Caller, CachedAnswer] = {}

    def of(self, caller: Caller) -> CachedAnswer:
        """That of `caller`. One for a caller who has shown a token is not kept: the token would be kept with it."""
        if caller is ANYONE:
            return self._anyone
        if caller.authorization:
            return self._new(caller)
        kept = self._others.get(caller)
        if kept is None:
            if len(self._others) >= MAX_KEPT_FOR:
                del self._others[next(iter(self._others))]
            kept = self._others[caller] = self._new(caller)
        return kept

    def _new(self, caller: Caller) -> CachedAnswer:
        return CachedAnswer(lambda: self._make(caller), more=self._more)


class CachedAnswer:
    """One small answer, as encoded messages."""

    def __init__(
        self,
        make: Callable[[], Awaitable[Made]],
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
        """Send it, or 304 to a client that has it. Raises what making it raises."""
        if self._clock() >= self._fresh_until:
            await self._renewed()
        for name, value in scope["headers"]:
            if name == b"if-none-match" and matches(value.decode("latin-1"), self._etag.decode(), weak=True):
                await send(self._unchanged)
                await send(EMPTY)
                return
        start, body = self._start, self._body  # to send takes time, and the next one may be made meanwhile
        await send(start)
        await send(EMPTY if scope["method"] == "HEAD" else body)

    def ready(self, headers: Iterable[Header]) -> bytes | None:
        """Head, but for its first line, and body, where they are fresh and a client wants them whole."""
        if self._clock() >= self._fresh_until:
            return None
        for name, _ in headers:
            if name in SPECIAL:
                return None
        return b"x-request-id: %b\r\n%b" % (trace.new_request_id(), self._whole)

    async def _renewed(self) -> None:
        """Whoever comes while it is made waits for the same making; a client that leaves does not end it."""
        if self._making is None:
            self._making = asyncio.ensure_future(self._renew())
            self._making.add_done_callback(self._made)
        await asyncio.shield(self._making)

    def _made(self, making: asyncio.Task[None]) -> None:
        self._making = None
        if not making.cancelled():
            making.exception()  # told to those that wait, if any still do

    async def _renew(self) -> None:
        made = await self._make()
        self._etag = b'"%s"' % hashlib.sha256(made.body).hexdigest()[:20].encode()
        kept: list[Header] = [(b"etag", self._etag), (b"cache-control", b"private, no-cache"), *self._more]
        described = [(b"content-type", made.media_type), (b"content-length", b"%d" % len(made.body)), *kept]
        self._start = {"type": "http.response.start", "status": 200, "headers": described}
        self._body = {"type": "http.response.body", "body": made.body}
        self._unchanged = {"type": "http.response.start", "status": 304, "headers": kept}
        self._whole = b"".join(b"%b: %b\r\n" % header for header in described) + b"\r\n" + made.body
        self._fresh_until = self._clock() + LIFETIME_SECONDS
