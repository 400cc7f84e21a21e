"""ASGI types, the gateway's own keys in a scope, and the `send` and `receive` of each request.

Every answer and every WebSocket has an `x-request-id` header: the request's own id, or a new one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from fastflight.runtime import tracing as trace

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]

# The key of the `Identity` in a scope, and of the name in the verified client certificate in the scope's `state`.
CALLER, CERTIFICATE = "fastflight.caller", "certificate"
# The key of the `AnswerSender` in a scope.
SENDER = "fastflight.sender"
# The message that ends a body.
EMPTY: dict[str, Any] = {"type": "http.response.body", "body": b""}

_NAMES = {name.encode(): name for name in trace.NAMES}
# Messages that carry the headers of an answer.
_WITH_HEADERS = ("http.response.start", "websocket.accept", "websocket.http.response.start")
# Headers of a request that has content.
_OF_CONTENT = (b"content-length", b"transfer-encoding")
# Methods that are counted by name; all others are counted as `other`.
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"))


# How long a client that is answered while it still sends has to read the answer.
LEAVE_SECONDS = 5.0


class AnswerSender:
    """The `send` of one request: adds `headers` to its answer, and counts HTTP answers by method and status.

    It makes the request's trace current in this task. `headers` may be extended until the answer is `started`. If the
    answer is complete before the request's content has come, the rest of the content is read and discarded for up to
    `LEAVE_SECONDS`: if the connection were closed at once, TCP would destroy the answer. So the application must
    receive with `receive`.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, answers: Counter[tuple[str, int]]) -> None:
        self._receive = receive
        self._send = send
        self._in_content = scope["type"] == "http" and any(name in _OF_CONTENT for name, _ in scope["headers"])
        self._answers = answers
        method = scope.get("method")  # a WebSocket has none
        self._method = method if method in _METHODS else "other"
        self.headers: list[Header] = [(trace.REQUEST_ID.encode(), _enter_trace(scope).encode())]
        self.started = False
        scope[SENDER] = self

    async def __call__(self, message: Message) -> None:
        if message["type"] in _WITH_HEADERS:
            self.started = True
            message = {**message, "headers": [*message.get("headers", ()), *self.headers]}
            if message["type"] == "http.response.start":
                self._answers[self._method, message["status"]] += 1
        is_last = message["type"] == EMPTY["type"] and not message.get("more_body", False)
        if is_last and self._in_content:
            await self._send({**message, "more_body": True})
            await self._discard_content()
            message = EMPTY
        await self._send(message)

    async def receive(self) -> Message:
        message = await self._receive()
        if not message.get("more_body", False):
            self._in_content = False
        return message

    async def _discard_content(self) -> None:
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                while self._in_content:
                    await self.receive()
        except TimeoutError:
            pass


def _enter_trace(scope: Scope) -> str:
    """Make the request's trace current, and return its id."""
    found: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        if name in _NAMES:
            found.setdefault(_NAMES[name], []).append(value.decode("latin-1"))
    request_trace = trace.from_headers(found)
    trace.enter(request_trace)
    return request_trace.request_id
