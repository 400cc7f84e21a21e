"""Answers that many pages ask for at the same time: the state of the server and its devices, each with an ETag."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial

from fastflight.gateway.asgi import EMPTY, Header, Scope, Send
from fastflight.gateway.auth import Caller
from fastflight.gateway.content.conditions import matches


@dataclass(frozen=True, slots=True)
class AnswerContent:
    """The body of an answer, and its content type."""

    body: bytes
    media_type: bytes = b"application/json"


# Makes the content for a caller.
Make = Callable[[Caller], Awaitable[AnswerContent]]


class SharedAnswer:
    """Makes an answer when it is requested. Requests of one caller that come at the same time share one making."""

    def __init__(self, make: Make) -> None:
        self._make = make
        self._making: dict[Caller, asyncio.Task[AnswerContent]] = {}

    async def answer(self, caller: Caller, scope: Scope, send: Send) -> None:
        """Send the answer, or 304 if the client has it. Raises what making it raises."""
        making = self._making.get(caller)
        if making is None:
            making = self._making[caller] = asyncio.ensure_future(self._make(caller))
            making.add_done_callback(partial(self._finish, caller))
        # A client that leaves does not end the making for the others.
        content = await asyncio.shield(making)
        await send_content(scope, send, content, [(b"cache-control", b"private, no-cache")])

    def _finish(self, caller: Caller, making: asyncio.Task[AnswerContent]) -> None:
        del self._making[caller]
        if not making.cancelled():
            making.exception()  # fetched here, as asyncio logs an exception that nobody has fetched


async def send_content(scope: Scope, send: Send, content: AnswerContent, headers: Iterable[Header]) -> None:
    """Send `content` with its ETag and these headers, or 304 if the client has it."""
    etag = b'"%s"' % hashlib.sha256(content.body).hexdigest()[:20].encode()
    lasting = [(b"etag", etag), *headers]
    for name, value in scope["headers"]:
        if name == b"if-none-match" and matches(value.decode("latin-1"), etag.decode(), weak=True):
            await send({"type": "http.response.start", "status": 304, "headers": lasting})
            await send(EMPTY)
            return
    described = [(b"content-type", content.media_type), (b"content-length", b"%d" % len(content.body)), *lasting]
    await send({"type": "http.response.start", "status": 200, "headers": described})
    await send(EMPTY if scope["method"] == "HEAD" else {"type": "http.response.body", "body": content.body})
