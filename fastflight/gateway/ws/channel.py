"""One accepted WebSocket: messages both ways, none over 1 MiB, and an end that says why.

Sending waits while the client does not read: beside what one message holds, the transport buffers 64 KiB. Each message
sent lets the loop's other tasks run, which a client that always reads would keep from it.

The close codes: 1000 at the end of what was asked for, 1001 when the server shuts down, and for an error 4000 and the
status that HTTP has for it. What is sent by the protocol below: 1009 to a message that is too big, 1002 and 1007 to
what is no WebSocket, 1011 when the client did not answer a ping.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fastflight.errors import Stopped
from fastflight.gateway.asgi import Receive, Send
from fastflight.gateway.errors import error_answer_off_loop

# A message, either way.
MAX_MESSAGE_BYTES = 1024 * 1024
# What a close frame holds beside its code (RFC 6455, 5.5).
MAX_REASON_BYTES = 123
NORMAL, GOING_AWAY, OF_STATUS = 1000, 1001, 4000
# Until a client that does not read is told no more why it is left.
GOODBYE_SECONDS = 2.0


def cut_reason(reason: str) -> str:
    """`reason` as far as a close frame holds it, cut between characters."""
    return reason.encode(errors="replace")[:MAX_REASON_BYTES].decode(errors="ignore")


class WebSocketChannel:
    """An accepted WebSocket. One task sends, one receives."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send

    async def receive(self) -> bytes | str:
        """The next message; `Stopped` once the client has left."""
        while True:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                raise Stopped("the client has left")
            if message["type"] == "websocket.receive":
                text: str | None = message.get("text")
                return bytes(message.get("bytes") or b"") if text is None else text

    async def send(self, data: bytes | memoryview | str) -> None:
        """Send a binary or a text message; `Stopped` once the client has left."""
        content = {"text": data} if isinstance(data, str) else {"bytes": bytes(data)}
        try:
            await self._send({"type": "websocket.send", **content})
        except OSError as error:  # as ASGI has it
            raise Stopped("the client has left") from error
        await asyncio.sleep(0)

    async def tell(self, **content: Any) -> None:
        """Send what is beside the rows, as one JSON object."""
        await self.send(json.dumps(content, default=str, ensure_ascii=False))

    async def fail(self, error: Exception) -> None:
        """End with an error: a message and a close code, should the client still be there."""
        status, body = await error_answer_off_loop(error)
        told = json.loads(body)
        try:
            async with asyncio.timeout(GOODBYE_SECONDS):
                await self.tell(error=told)
                await self._close(OF_STATUS + status, told["text"])
        except (Stopped, TimeoutError):
            pass

    async def finish(self, code: int, reason: str) -> None:
        """End as it should."""
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
