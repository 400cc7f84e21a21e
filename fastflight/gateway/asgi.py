"""The types of ASGI, the gateway's own keys in a scope, and the request id and trace in headers.

Every answer and every WebSocket has an `x-request-id`, that of the request if it brings one.
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

# Where a scope has its `Caller`, and what TLS has proven of the client.
CALLER, CERTIFICATE = "fastflight.caller", "certificate"
# The end of a body.
EMPTY: dict[str, Any] = {"type": "http.response.body", "body": b""}

_NAMES = {name.encode(): name for name in trace.NAMES}
# The messages that begin an answer and have headers.
_BEGINNINGS = ("http.response.start", "websocket.accept", "websocket.http.response.start")


def begin(scope: MutableMapping[str, Any], send: Send) -> Send:
    """Enter the trace of a request in this task. Returns a `send` that adds the request id to the answer's headers."""
    found: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        if name in _NAMES:
            found.setdefault(_NAMES[name], []).append(value.decode("latin-1"))
    given = trace.from_headers(found)
    trace.enter(given)
    told = (trace.REQUEST_ID.encode(), given.request_id.encode())

    async def telling(message: Message) -> None:
        if message["type"] in _BEGINNINGS:
            message = {**message, "headers": [*message.get("headers", ()), told]}
        await send(message)

    return telling
