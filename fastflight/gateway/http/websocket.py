"""uvicorn's WebSocket, with the ends and the bounds that it lacks.

A client that does not read, or sends no more, is left; what it may have kept for it by sending is bounded. A handshake
that uvicorn cannot read has an answer, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from fastflight.gateway.errors import HttpRefusal, closing_answer

# What a client gets to read the end of a WebSocket.
LINGER_SECONDS = 5.0


class WebSocket(WebSocketsSansIOProtocol):
    """One connection, from the request for it on; `gone` is called when it has ended."""

    _cutting: asyncio.TimerHandle | None = None
    # The answer to the last ping, for a client that does not read.
    _pong = b""
    # The message that comes in fragments: there may be any number of them, also empty ones.
    _parts: bytearray | None = None
    gone: Callable[[], None] = staticmethod(lambda: None)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            hint = "At most 128 headers, none over 8 KiB, and no content"
            self.transport.write(
                closing_answer(HttpRefusal(400, "not a handshake of a WebSocket", where="head", hint=hint), {})
            )
            self.transport.close()

    def eof_received(self) -> None:
        """Who sends no more has left, also where what was written is not taken: uvicorn would wait for that."""
        self.queue.put_nowait({"type": "websocket.disconnect", "code": 1006})

    def handle_ping(self) -> None:
        """Answer while the client reads. When it reads again, the last is answered for all (RFC 6455, 5.5.3)."""
        answers = self.conn.data_to_send()
        if self.writable.is_set() or self.conn.close_sent is not None:
            self.transport.write(b"".join(answers))
        elif answers:
            self._pong = answers[-1]

    def resume_writing(self) -> None:
        super().resume_writing()
        pong, self._pong = self._pong, b""
        if pong and not self.close_sent:
            self.transport.write(pong)

    def handle_cont(self, event: Frame) -> None:
        if self._parts is None:
            self._parts = bytearray(self.frames[0])
        self._parts += event.data
        if event.fin:
            self.frames, self._parts = [bytes(self._parts)], None
            self.send_receive_event_to_app()

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.transport.abort()

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        """Closing waits until all that was written is taken: not for ever."""
        super().on_task_complete(task)
        if not self.disconnected:
            self._cutting = self.loop.call_later(LINGER_SECONDS, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._cutting is not None:
            self._cutting.cancel()
        super().connection_lost(exc)
        self.gone()
