"""The headers of HTTP requests and WebSockets: the request's id and its trace, both ways."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from fastflight.runtime import tracing as trace

Message: TypeAlias = MutableMapping[str, Any]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

_NAMES = {name.encode(): name for name in trace.NAMES}
# Each of these messages begins an answer, and has headers.
_BEGINNINGS = ("http.response.start", "websocket.accept", "websocket.http.response.start")


def begin(scope: MutableMapping[str, Any], send: Send) -> Send:
    """What this task does from here on is done for its request. Gives `send` back, which tells the client its id."""
    found: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        if name in _NAMES:
            found.setdefault(_NAMES[name], []).append(value.decode("latin-1"))
    given = trace.of(found)
    trace.enter(given)
    told = (trace.REQUEST_ID.encode(), given.request_id.encode())

    async def telling(message: Message) -> None:
        if message["type"] in _BEGINNINGS:
            message = {**message, "headers": [*message.get("headers", ()), told]}
        await send(message)

    return telling
