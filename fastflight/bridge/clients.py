"""The clients of a bridge: the writer, which holds the line, and viewers, which receive what the device sends.

`run` serves a client until it disconnects, `end` is called, or the line is lost. It returns the reason to send to the
client; empty if the client disconnected.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from typing import Any

from fastflight.bridge.channel import PortChannel
from fastflight.bridge.connection import Connection
from fastflight.bridge.dialect import Dialect
from fastflight.errors import TransportError
from fastflight.gap import Gap
from fastflight.transport.chunk_buffer import TapReader

# How long the last data of a writer may take to reach the device after the writer has closed its connection. A program
# that closes a serial port waits for its last data in the same way.
DRAIN_SECONDS = 10.0
# RFC 2217 lets a client suspend the flow. A client that forgets to resume it would block the device for all others,
# viewers included.
SUSPENDED_SECONDS = 60.0


class _Client:
    def __init__(self, connection: Connection, kind: str) -> None:
        self.name = f"{connection.peer} ({kind})"
        self._connection = connection
        self._end: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def end(self, reason: str) -> None:
        """Make `run` return `reason`."""
        if not self._end.done():
            self._end.set_result(reason)

    async def _until_ended(self, *work: Coroutine[None, None, None]) -> str:
        """Run the coroutines `work` until one of them finishes or fails, or `end` is called. Return the reason."""
        tasks = [asyncio.ensure_future(part) for part in work]
        ends: list[asyncio.Future[Any]] = [*tasks, self._end]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not self._end.done():
                for task in tasks:
                    if task.done():
                        task.result()
        except TransportError as error:
            self.end(str(error))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return self._end.result() if self._end.done() else ""


class WriterClient(_Client):
    """The client that holds the line. It is the line's listener, and passes what the device sends to the connection."""

    def __init__(self, connection: Connection, dialect: Dialect) -> None:
        super().__init__(connection, dialect.name)
        self._dialect = dialect
        self._behind = False
        self._channel: PortChannel | None = None
        self._suspend_timer: asyncio.TimerHandle | None = None
        # When the client last sent something, by the loop's clock.
        self.active_at = -math.inf
        # Set when the client has released the line.
        self.released = asyncio.Event()

    async def run(self, channel: PortChannel) -> str:
        """Pass bytes in both directions."""
        self._channel = channel
        self._connection.full = self._on_full
        try:
            return await self._until_ended(
                self._forward(channel), self._dialect.watch(channel, self._connection.send), self._drain()
            )
        finally:
            self._connection.full = lambda _: None
            self._limit_suspension(False)

    def data_received(self, data: bytes) -> None:
        self._connection.send(self._dialect.encode(data))

    def line_lost(self, reason: str) -> None:
        self.end(reason)

    async def _forward(self, channel: PortChannel) -> None:
        while data := await self._connection.receive():
            self.active_at = asyncio.get_running_loop().time()
            # Answers to a client that does not read them must not pile up.
            await self._connection.drained()
            await self._dialect.carry(data, channel, self._connection.send)
            self._update_flow(channel)

    async def _drain(self) -> None:
        await self._connection.wait_closed()
        await asyncio.sleep(DRAIN_SECONDS)

    def _on_full(self, behind: bool) -> None:
        self._behind = behind
        if self._channel is not None:
            self._update_flow(self._channel)

    def _update_flow(self, channel: PortChannel) -> None:
        if self._behind or self._dialect.suspended:
            channel.pause()
        else:
            channel.resume()
        self._limit_suspension(self._dialect.suspended)

    def _limit_suspension(self, suspended: bool) -> None:
        """End the client if it keeps the flow suspended for `SUSPENDED_SECONDS`."""
        if not suspended and self._suspend_timer is not None:
            self._suspend_timer.cancel()
            self._suspend_timer = None
        elif suspended and self._suspend_timer is None:
            reason = f"the flow was suspended for {SUSPENDED_SECONDS:g} s and not resumed"
            self._suspend_timer = asyncio.get_running_loop().call_later(SUSPENDED_SECONDS, self.end, reason)


class ViewerClient(_Client):
    """A client that only receives. If it does not keep up, it loses data, and gets a notice in its place.

    A client that has closed its sending side (`nc ... </dev/null`) still receives. Whether it has disconnected shows
    only when the device next sends something; until then, `may_be_gone` is true.
    """

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection, "viewer")
        connection.discard()

    @property
    def may_be_gone(self) -> bool:
        """Whether the client has closed its sending side, and so may have disconnected."""
        return self._connection.ended

    async def run(self, reader: TapReader) -> str:
        """Pass on what the device sends."""
        return await self._until_ended(self._forward(reader), self._connection.wait_closed())

    def note(self, text: str) -> None:
        """Send `text` about the device, on a separate line."""
        self._connection.send(notice(text))

    async def _forward(self, reader: TapReader) -> None:
        while not reader.ended:
            for item in await reader.atake(None):
                if isinstance(item, Gap):
                    self.note(f"lost here, read too slowly: chunks {item.first} to {item.last}")
                elif item.direction == "rx":
                    self._connection.send(item.data)
                await self._connection.drained()


def bridge_message(text: str) -> bytes:
    """Return a message of the bridge, one line, for a client that has received nothing from the device."""
    return f"fastflight: {' '.join(text.split())}\r\n".encode(errors="replace")


def notice(text: str) -> bytes:
    """Return a message of the bridge, on a separate line, for a client that receives data from the device."""
    return b"\r\n" + bridge_message(text)
