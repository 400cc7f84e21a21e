"""ASGI types, the gateway's own keys in a scope, and the request id and trace of each request.

Every answer and every WebSocket has an `x-request-id` header: the request's own id, or a new one.
"""

from __future__ import annotations

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
# The message that ends a body.
EMPTY: dict[str, Any] = {"type": "http.response.body", "body": b""}

_NAMES = {name.encode(): name for name in trace.NAMES}
# Messages that carry the headers of an answer.
_WITH_HEADERS = ("http.response.start", "websocket.accept", "websocket.http.response.start")


def begin(scope: MutableMapping[str, Any], send: Send) -> Send:
    """Make the request's trace current in this task; return a `send` that adds the request id to the headers."""
    found: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        if name in _NAMES:
            found.setdefault(_NAMES[name], []).append(value.decode("latin-1"))
    request_trace = trace.from_headers(found)
    trace.enter(request_trace)
    id_header = (trace.REQUEST_ID.encode(), request_trace.request_id.encode())

    async def send_with_id(message: Message) -> None:
        if message["type"] in _WITH_HEADERS:
            message = {**message, "headers": [*message.get("headers", ()), id_header]}
        await send(message)

    return send_with_id
