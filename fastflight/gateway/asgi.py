"""The words of ASGI, and what the gateway keeps in a scope."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]

# Where a scope has its `Caller`, and what TLS has proven of the client.
CALLER, CERTIFICATE = "fastflight.caller", "certificate"
# A content that has nothing more.
EMPTY: dict[str, Any] = {"type": "http.response.body", "body": b""}
