"""One client's TCP connection, with bounded buffers in both directions.

`receive` returns what the peer sent. If nobody calls it, reading pauses after `RECEIVE_BYTES`, and further data stays
with the peer. `send` never waits, and calls `full` when the peer does not keep up. `finish` ends the connection after a
last message.

The first bytes of a connection are examined, because a browser must not reach the device (see `opening`). Bytes that
may be the beginning of a browser's request are held until more bytes arrive or `HOLD_SECONDS` have passed. If the peer
is a browser, `browser` names its protocol and `receive` returns no data. Wait for the result in `wait_examined`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import cast

from fastflight.bridge.opening import browser_protocol
from fastflight.transport.socket import tune

# The received data to buffer for the device: enough to keep a fast line busy between two turns of the loop.
RECEIVE_BYTES = 512 * 1024
# The data to buffer for a slow client, besides the system's own buffers. Above this size its source is paused.
SEND_BYTES = 256 * 1024
# A client that reads nothing for this long has hung or was stopped, while others may want its device.
STALLED_SECONDS = 30.0
# How long a client has to read the reason why it is disconnected. Closing at once could destroy the text in transit.
LINGER_SECONDS = 2.0
# How long to hold first bytes that may be the beginning of a browser's request. A browser sends the whole request at
# once. A person at a terminal who types `GET ` takes longer than this between two keys.
HOLD_SECONDS = 0.2


class Connection(asyncio.Protocol):
    """One accepted connection. `accepted` is called with it when it is set up."""

    def __init__(self, accepted: Callable[[Connection], None]) -> None:
        self._accepted = accepted
        self._loop = asyncio.get_running_loop()
        self._pieces: deque[bytes] = deque()
        self._buffered_bytes = 0
        self._paused = False
        self._discarding = False
        self._finishing = False
        self._ended = False
        self._received = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()
        self._closed = asyncio.Event()
        self._stall_timer: asyncio.TimerHandle | None = None
        # The peer's first bytes; None once they have been examined.
        self._opening: bytes | None = b""
        self._hold_timer: asyncio.TimerHandle | None = None
        self._examined = asyncio.Event()
        self._transport: asyncio.Transport
        self.peer = ""
        # The protocol of a peer that is a browser, else empty.
        self.browser = ""
        # Called with True when the peer falls behind, and with False when it has caught up.
        self.full: Callable[[bool], None] = lambda _: None

    async def wait_examined(self) -> None:
        """Wait until the peer's first bytes have been examined, or the peer has closed its sending side."""
        await self._examined.wait()

    async def receive(self) -> bytes:
        """Wait for data and return at least one byte; `b""` if the peer has closed its sending side or is a browser."""
        while not self._pieces:
            if self._ended or self.browser:
                return b""
            self._received.clear()
            await self._received.wait()
        data = self._pieces.popleft()
        self._buffered_bytes -= len(data)
        if self._paused and self._buffered_bytes < RECEIVE_BYTES // 2:
            self._paused = False
            self._transport.resume_reading()
        return data

    @property
    def ended(self) -> bool:
        """Whether the peer has closed its sending side. Only a send to it can show whether it still receives."""
        return self._ended

    def send(self, data: bytes) -> None:
        """Send `data` without waiting. It is dropped when the connection is closing."""
        if data and not self._transport.is_closing():
            self._transport.write(data)

    async def drained(self) -> None:
        """Wait until the peer has caught up."""
        await self._drained.wait()

    def discard(self) -> None:
        """Drop the data that is buffered and all that the peer sends from now on."""
        self._discarding = True
        self._accept_opening()
        self._pieces.clear()
        self._buffered_bytes = 0
        if self._paused:
            self._paused = False
            self._transport.resume_reading()

    async def wait_closed(self) -> None:
        """Wait until the connection is closed."""
        await self._closed.wait()

    def abort(self) -> None:
        """Close the connection at once, and drop unsent data."""
        self._transport.abort()

    async def finish(self, last: bytes = b"", linger: float = LINGER_SECONDS) -> None:
        """Send `last` and close the connection, in `linger` seconds at most. The socket is closed when this returns."""
        self._finishing = True
        try:
            if not self._transport.is_closing():
                self.send(last)
                if self._ended:
                    self._transport.close()
                else:
                    self.discard()
                    with contextlib.suppress(OSError):  # the peer has reset the connection
                        self._transport.write_eof()
                async with asyncio.timeout(linger):
                    await self._closed.wait()
        except TimeoutError:
            pass
        finally:
            self.abort()
            await self._closed.wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # libuv's transports have the methods of `asyncio.Transport`, but are not subclasses of it.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=SEND_BYTES)
        tune(transport.get_extra_info("socket"))
        address = transport.get_extra_info("peername") or ("unknown", 0)
        self.peer = f"[{address[0]}]:{address[1]}" if ":" in address[0] else f"{address[0]}:{address[1]}"
        self._accepted(self)

    def data_received(self, data: bytes) -> None:
        if self._discarding:
            return
        if self._opening is not None:
            self._examine(self._opening + data)
        else:
            self._buffer(data)

    def _examine(self, opening: bytes) -> None:
        """Hold the peer's first bytes, accept them, or refuse them as a browser's."""
        self._cancel_hold()
        protocol = browser_protocol(opening)
        if protocol is None:
            self._opening = opening
            self._hold_timer = self._loop.call_later(HOLD_SECONDS, self._accept_opening)
        elif protocol:
            self._opening = None
            self.browser = protocol
            self.discard()
            self._received.set()
        else:
            self._opening = opening
            self._accept_opening()

    def _accept_opening(self) -> None:
        """Stop holding the first bytes, and buffer them as data unless data is dropped."""
        self._cancel_hold()
        opening, self._opening = self._opening, None
        if opening and not self._discarding:
            self._buffer(opening)
        self._examined.set()

    def _cancel_hold(self) -> None:
        if self._hold_timer is not None:
            self._hold_timer.cancel()
            self._hold_timer = None

    def _buffer(self, data: bytes) -> None:
        self._pieces.append(data)
        self._buffered_bytes += len(data)
        if self._buffered_bytes >= RECEIVE_BYTES and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        self._received.set()

    def eof_received(self) -> bool:
        self._accept_opening()
        self._ended = True
        self._received.set()
        # Keep the transport open: the peer may still receive, and its last data is on the way to the device. `finish`
        # closes it. During `finish` the end of the peer's data is its answer, and the transport may close.
        return not self._finishing

    def pause_writing(self) -> None:
        self._drained.clear()
        self._stall_timer = self._loop.call_later(STALLED_SECONDS, self._transport.abort)
        self.full(True)

    def resume_writing(self) -> None:
        self._drained.set()
        self._cancel_stall()
        self.full(False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._accept_opening()
        self._ended = True
        self._cancel_stall()
        self._received.set()
        self._drained.set()
        self._closed.set()

    def _cancel_stall(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
