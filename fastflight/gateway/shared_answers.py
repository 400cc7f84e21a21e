"""Answers that many pages ask for at the same time: the state of the server and its devices, each with an ETag."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from fastflight.access.identity import Identity
from fastflight.gateway.asgi import EMPTY, Header, Scope, Send
from fastflight.service.versions import matches

CACHE_CONTROL: Header = (b"cache-control", b"private, no-cache")


@dataclass(frozen=True, slots=True)
class AnswerContent:
    """The body of an answer, and its content type."""

    body: bytes
    media_type: bytes = b"application/json"

    @property
    def etag(self) -> bytes:
        return b'"%s"' % hashlib.sha256(self.body).hexdigest()[:20].encode()

    def headers(self, *lasting: Header) -> list[Header]:
        """Return the headers of the whole answer: those of the content, and `lasting`, which a 304 has as well."""
        return [(b"content-type", self.media_type), (b"content-length", b"%d" % len(self.body)), *lasting]


# Makes the content for a caller.
Make = Callable[[Identity], Awaitable[AnswerContent]]


class SharedAnswer:
    """Makes an answer when it is requested. Requests of one caller that come at the same time share one making."""

    def __init__(self, make: Make) -> None:
        self._make = make
        self._making: dict[Identity, asyncio.Task[AnswerContent]] = {}

    async def answer(self, caller: Identity, scope: Scope, send: Send) -> None:
        """Send the answer, or 304 if the client has it. Raises what making it raises."""
        making = self._making.get(caller)
        if making is None:
            making = self._making[caller] = asyncio.ensure_future(self._make(caller))
            making.add_done_callback(partial(self._finish, caller))
        # A client that leaves does not end the making for the others.
        content = await asyncio.shield(making)
        await send_content(scope, send, content, CACHE_CONTROL)

    def _finish(self, caller: Identity, making: asyncio.Task[AnswerContent]) -> None:
        del self._making[caller]
        # The exception is fetched here, as asyncio logs one that nobody has fetched.
        if not making.cancelled():
            making.exception()


async def send_content(scope: Scope, send: Send, content: AnswerContent, *headers: Header) -> None:
    """Send `content` with its ETag and these headers, or 304 if the client has it."""
    etag = content.etag
    lasting = ((b"etag", etag), *headers)
    for name, value in scope["headers"]:
        if name == b"if-none-match" and matches(value.decode("latin-1"), etag.decode(), weak=True):
            await send({"type": "http.response.start", "status": 304, "headers": lasting})
            await send(EMPTY)
            return
    await send({"type": "http.response.start", "status": 200, "headers": content.headers(*lasting)})
    await send(EMPTY if scope["method"] == "HEAD" else {"type": "http.response.body", "body": content.body})
