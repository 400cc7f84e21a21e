"""One client's TCP connection: bounded both ways, ended with a word, and never the reason that another waits.

`receive` takes what came, and what it does not take stays with the peer; `send` hands over without waiting, and says by
`full` when the peer does not keep up. Nothing here runs by the clock unless a peer is stuck, is being told to go, or
has begun as a browser does.

First bytes that may be a browser's (`opening`) are held until it shows whether they are. What a browser sent is never
received: `browser` has the protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import cast

from fastflight.bridge.opening import browser_protocol
from fastflight.transport.socket import tune

# What a client may send ahead of its device: enough to keep a fast line busy between two turns of the loop.
RECEIVE_BYTES = 512 * 1024
# What waits for a slow client beside the system's own buffers; above it the source is paused.
SEND_BYTES = 256 * 1024
# A client that takes nothing for so long has hung, or was stopped; its device is wanted by others.
STALLED_SECONDS = 30.0
# What a client that is told to go gets to read why. Closing at once could destroy the text on its way.
LINGER_SECONDS = 2.0
# How long first bytes that could become a browser's are held for the next one. A browser sends all of them at once; a
# person who types `GET ` takes longer between two keys than this, or begins with another one.
HOLD_SECONDS = 0.2


class Connection(asyncio.Protocol):
    """One accepted connection; `accepted` is told of it."""

    def __init__(self, accepted: Callable[[Connection], None]) -> None:
        self._accepted = accepted
        self._loop = asyncio.get_running_loop()
        self._pieces: deque[bytes] = deque()
        self._waiting = 0
        self._paused = False
        self._discarding = False
        self._finishing = False
        self._ended = False
        self._came = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()
        self._gone = asyncio.Event()
        self._stall: asyncio.TimerHandle | None = None
        # The first bytes, until it is known what they are.
        self._first: bytes | None = b""
        self._hold: asyncio.TimerHandle | None = None
        self._begun = asyncio.Event()
        self._transport: asyncio.Transport
        self.peer = ""
        # The protocol of a peer that is a browser.
        self.browser = ""
        # Told when the peer falls behind (true) and when it has caught up (false).
        self.full: Callable[[bool], None] = lambda _: None

    async def begun(self) -> None:
        """Wait until it is known what the peer began with, or it has ended."""
        await self._begun.wait()

    async def receive(self) -> bytes:
        """At least one byte; none when the peer has ended or is a browser."""
        while not self._pieces:
            if self._ended or self.browser:
                return b""
            self._came.clear()
            await self._came.wait()
        data = self._pieces.popleft()
        self._waiting -= len(data)
        if self._paused and self._waiting < RECEIVE_BYTES // 2:
            self._paused = False
            self._transport.resume_reading()
        return data

    @property
    def ended(self) -> bool:
        """The peer sends no more. Whether it still listens is not known until something is sent to it."""
        return self._ended

    def send(self, data: bytes) -> None:
        """Hand `data` over; dropped when the connection is ending."""
        if data and not self._transport.is_closing():
            self._transport.write(data)

    async def drained(self) -> None:
        """Wait until the peer keeps up."""
        await self._drained.wait()

    def discard(self) -> None:
        """Throw away what the peer sends from now on."""
        self._discarding = True
        self._begin()
        self._pieces.clear()
        self._waiting = 0
        if self._paused:
            self._paused = False
            self._transport.resume_reading()

    async def gone(self) -> None:
        """Wait until the connection is closed."""
        await self._gone.wait()

    def abort(self) -> None:
        """End the connection without a word."""
        self._transport.abort()

    async def finish(self, last: bytes = b"", linger: float = LINGER_SECONDS) -> None:
        """End the connection after `last`, in `linger` seconds at most. The socket is closed when this returns."""
        self._finishing = True
        try:
            if not self._transport.is_closing():
                self.send(last)
                if self._ended:
                    self._transport.close()
                else:
                    self.discard()
                    with contextlib.suppress(OSError):  # the peer reset it, which was not noticed here yet
                        self._transport.write_eof()
                async with asyncio.timeout(linger):
                    await self._gone.wait()
        except TimeoutError:
            pass
        finally:
            self.abort()
            await self._gone.wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # libuv's transports are asyncio's by what they do, and not by their class.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=SEND_BYTES)
        tune(transport.get_extra_info("socket"))
        address = transport.get_extra_info("peername") or ("unknown", 0)
        self.peer = f"[{address[0]}]:{address[1]}" if ":" in address[0] else f"{address[0]}:{address[1]}"
        self._accepted(self)

    def data_received(self, data: bytes) -> None:
        if self._discarding:
            return
        if self._first is not None:
            self._look(self._first + data)
        else:
            self._take(data)

    def _look(self, first: bytes) -> None:
        """Hold what the peer began with, take it, or refuse it."""
        self._unhold()
        protocol = browser_protocol(first)
        if protocol is None:
            self._first = first
            self._hold = self._loop.call_later(HOLD_SECONDS, self._begin)
        elif protocol:
            self._first = None
            self.browser = protocol
            self.discard()
            self._came.set()
        else:
            self._first = first
            self._begin()

    def _begin(self) -> None:
        """Take what was held: it is not a browser's."""
        self._unhold()
        first, self._first = self._first, None
        if first and not self._discarding:
            self._take(first)
        self._begun.set()

    def _unhold(self) -> None:
        if self._hold is not None:
            self._hold.cancel()
            self._hold = None

    def _take(self, data: bytes) -> None:
        self._pieces.append(data)
        self._waiting += len(data)
        if self._waiting >= RECEIVE_BYTES and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        self._came.set()

    def eof_received(self) -> bool:
        self._begin()
        self._ended = True
        self._came.set()
        # It may still listen, and what it sent before is on its way to the device: `finish` closes. There it is the
        # peer's answer.
        return not self._finishing

    def pause_writing(self) -> None:
        self._drained.clear()
        self._stall = self._loop.call_later(STALLED_SECONDS, self._transport.abort)
        self.full(True)

    def resume_writing(self) -> None:
        self._drained.set()
        self._unstall()
        self.full(False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._begin()
        self._ended = True
        self._unstall()
        self._came.set()
        self._drained.set()
        self._gone.set()

    def _unstall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
