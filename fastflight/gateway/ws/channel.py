"""One accepted WebSocket: sends and receives messages of at most 1 MiB, and closes with a code and a reason.

Sending waits while the client does not read: the transport buffers 64 KiB in addition to one message. After each
message the loop's other tasks run: otherwise a client that always reads would block them.

Close codes: 1000 at the end of the request, 1001 when the server shuts down, 4000 plus the HTTP status for an error.
The protocol below sends others: 1009 for a message that is too big, 1002 and 1007 for violations of the protocol.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fastflight.errors import Stopped
from fastflight.gateway.asgi import Receive, Send
from fastflight.gateway.errors import error_answer_off_loop

# A message, in either direction.
MAX_MESSAGE_BYTES = 1024 * 1024
# The reason in a close frame, next to its code (RFC 6455, 5.5).
MAX_REASON_BYTES = 123
NORMAL, GOING_AWAY, OF_STATUS = 1000, 1001, 4000
# How long sending the error and the close frame may take. A client that has not read them by then is disconnected.
GOODBYE_SECONDS = 2.0


def cut_reason(reason: str) -> str:
    """Return as much of `reason` as a close frame holds, cut between characters."""
    return reason.encode(errors="replace")[:MAX_REASON_BYTES].decode(errors="ignore")


class WebSocketChannel:
    """An accepted WebSocket. One task may send and one may receive at a time."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send

    async def receive(self) -> bytes | str:
        """Return the next message; raise `Stopped` once the client has left."""
        while True:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                raise Stopped("the client has left")
            if message["type"] == "websocket.receive":
                text: str | None = message.get("text")
                return bytes(message.get("bytes") or b"") if text is None else text

    async def left(self) -> Exception:
        """Ignore what the client sends, and raise `Stopped` once it has left."""
        while True:
            await self.receive()

    async def send(self, data: bytes | memoryview | str) -> None:
        """Send a binary or a text message; raise `Stopped` once the client has left."""
        content = {"text": data} if isinstance(data, str) else {"bytes": bytes(data)}
        try:
            await self._send({"type": "websocket.send", **content})
        except OSError as error:  # what ASGI servers raise then
            raise Stopped("the client has left") from error
        await asyncio.sleep(0)

    async def tell(self, **content: Any) -> None:
        """Send one JSON object as a text message: a note, the trailer or an error, but no rows."""
        await self.send(json.dumps(content, default=str, ensure_ascii=False))

    async def fail(self, error: Exception) -> None:
        """Send an error message and its close code; do nothing if the client has left."""
        status, body = await error_answer_off_loop(error)
        content = json.loads(body)
        try:
            async with asyncio.timeout(GOODBYE_SECONDS):
                await self.tell(error=content)
                await self._close(OF_STATUS + status, content["text"])
        except (Stopped, TimeoutError):
            pass

    async def finish(self, code: int, reason: str) -> None:
        """Close after a good end; do nothing if the client has left."""
        try:
            async with asyncio.timeout(GOODBYE_SECONDS):
                await self._close(code, reason)
        except (Stopped, TimeoutError):
            pass

    async def _close(self, code: int, reason: str) -> None:
        try:
            await self._send({"type": "websocket.close", "code": code, "reason": cut_reason(reason)})
        except OSError as error:
            raise Stopped("the client has left") from error
