"""uvicorn's WebSocket protocol, with limits that it lacks.

Disconnects clients that do not read or that close their side, bounds the memory that a client's messages take, and
answers handshakes that uvicorn cannot read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from fastflight.gateway.errors import HttpRefusal, closing_answer

# For a client to read the end of a WebSocket.
LINGER_SECONDS = 5.0


class WebSocket(WebSocketsSansIOProtocol):
    """One connection, from the upgrade on. `on_closed` is called when it has ended."""

    _abort_timer: asyncio.TimerHandle | None = None
    # The answer to the newest ping, while the client does not read.
    _pong = b""
    # The fragments of the current message, joined: a client may send any number of them, even empty ones.
    _parts: bytearray | None = None
    on_closed: Callable[[], None] = staticmethod(lambda: None)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            hint = "At most 128 headers, none over 8 KiB, and no content"
            self.transport.write(
                closing_answer(HttpRefusal(400, "not a handshake of a WebSocket", where="head", hint=hint), {})
            )
            self.transport.close()

    def eof_received(self) -> None:
        """Treat a client that has closed its side as gone. uvicorn would first wait until all output is sent."""
        self.queue.put_nowait({"type": "websocket.disconnect", "code": 1006})

    def handle_ping(self) -> None:
        """Answer pings while the client reads; when it reads again, answer the newest one for all (RFC 6455, 5.5.3)."""
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
        """Abort the connection if the client does not read the rest within `LINGER_SECONDS`."""
        super().on_task_complete(task)
        if not self.disconnected:
            self._abort_timer = self.loop.call_later(LINGER_SECONDS, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._abort_timer is not None:
            self._abort_timer.cancel()
        super().connection_lost(exc)
        self.on_closed()
