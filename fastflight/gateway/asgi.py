"""ASGI types, the gateway's own keys in a scope, and the `send` of each request.

Every answer and every WebSocket has an `x-request-id` header: the request's own id, or a new one.
"""

from __future__ import annotations

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

# The key of the `Caller` in a scope, and of the name in the verified client certificate in the scope's `state`.
CALLER, CERTIFICATE = "fastflight.caller", "certificate"
# The key of the `AnswerSender` in a scope.
SENDER = "fastflight.sender"
# The message that ends a body.
EMPTY: dict[str, Any] = {"type": "http.response.body", "body": b""}

_NAMES = {name.encode(): name for name in trace.NAMES}
# Messages that carry the headers of an answer.
_WITH_HEADERS = ("http.response.start", "websocket.accept", "websocket.http.response.start")
# Methods that are counted by name; all others are counted as `other`.
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"))


class AnswerSender:
    """The `send` of one request: adds `headers` to its answer, and counts HTTP answers by method and status.

    It makes the request's trace current in this task. `headers` may be extended until the answer is `started`.
    """

    def __init__(self, scope: Scope, send: Send, answers: Counter[tuple[str, int]]) -> None:
        self._send = send
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
        await self._send(message)


def _enter_trace(scope: Scope) -> str:
    """Make the request's trace current, and return its id."""
    found: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        if name in _NAMES:
            found.setdefault(_NAMES[name], []).append(value.decode("latin-1"))
    request_trace = trace.from_headers(found)
    trace.enter(request_trace)
    return request_trace.request_id
