"""Asking an application as an ASGI server does, without a network; and at a port, byte by byte."""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import dataclass, field
from typing import Any

from fastflight.gateway.asgi import Application, Message, Scope

HERE = (b"host", b"127.0.0.1:8000")
# The end of a head that asks for a WebSocket.
UPGRADE = (
    b"upgrade: websocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


@dataclass
class Answered:
    """What an application sent."""

    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    parts: list[bytes] = field(default_factory=list)
    ended: bool = False

    async def take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], dict(message["headers"])
        else:
            self.parts.append(bytes(message.get("body", b"")))
            self.ended = not message.get("more_body", False)

    @property
    def body(self) -> bytes:
        return b"".join(self.parts)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def scope(
    path: str = "/small", method: str = "GET", headers: tuple[tuple[bytes, bytes], ...] = (HERE,), query: str = ""
) -> Scope:
    return {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": list(headers),
        "scheme": "http",
        "server": ("127.0.0.1", 8000),
        "client": ("127.0.0.1", 50000),
        "root_path": "",
    }


async def ask(app: Application, asked: Scope, *parts: bytes) -> Answered:
    """Send a request whose body comes in `parts`; the client stays until it has the answer."""
    waiting = list(parts)
    answered = Answered()

    async def receive() -> Message:
        if waiting:
            part = waiting.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(waiting)}
        if not parts and not answered.status and not sent_empty:
            sent_empty.append(True)
            return {"type": "http.request", "body": b"", "more_body": False}
        await asyncio.Event().wait()
        raise AssertionError("never")

    sent_empty: list[bool] = []
    await app(asked, receive, answered.take)
    return answered


class AsgiClient:
    """One that decides when it reads, and when it leaves."""

    def __init__(
        self, app: Application, asked: Scope, content: bytes = b"", *, whole: bool = True, reads: float = math.inf
    ) -> None:
        """Asks at once; without `whole`, more content is to come. With so many bytes or more it `reads` no more."""
        self.answered = Answered()
        self._reads = reads
        self._arrived = asyncio.Event()
        self._incoming: asyncio.Queue[Message] = asyncio.Queue()
        self._incoming.put_nowait({"type": "http.request", "body": content, "more_body": not whole})
        self.call = asyncio.ensure_future(app(asked, self._incoming.get, self._take))  # type: ignore[arg-type]

    async def got(self, size: int) -> bytes:
        """Wait for so many bytes of the answer."""
        while len(self.answered.body) < size:
            self._arrived.clear()
            await self._arrived.wait()
        return self.answered.body

    def send(self, content: bytes) -> None:
        """Send the rest of the content."""
        self._incoming.put_nowait({"type": "http.request", "body": content, "more_body": False})

    def leave(self) -> None:
        self._incoming.put_nowait({"type": "http.disconnect"})

    async def _take(self, message: Message) -> None:
        if len(self.answered.body) >= self._reads:
            await asyncio.Event().wait()
        await self.answered.take(message)
        self._arrived.set()
