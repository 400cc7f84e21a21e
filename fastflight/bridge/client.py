"""Who is connected to a bridge: the writer, who has the line, and viewers, who see what the device says.

Both run until they leave, are told to go (`end`), or the line is lost; `run` gives the reason to tell them, empty when
they left by themselves.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from typing import Any

from fastflight.bridge.connection import Connection
from fastflight.bridge.dialect import Dialect
from fastflight.bridge.line import LineAccess, State
from fastflight.errors import TransportError
from fastflight.transport.chunk_buffer import Gap, TapReader

# What a client sent before it left still goes to the device, as with a serial port that is closed: for so long.
DRAIN_SECONDS = 10.0
# RFC 2217 lets a client suspend the flow. One that forgets to resume would keep the device from everybody, viewers too.
SUSPENDED_SECONDS = 60.0


class _Client:
    def __init__(self, connection: Connection, kind: str) -> None:
        self.name = f"{connection.peer} ({kind})"
        self._connection = connection
        self._end: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def end(self, reason: str) -> None:
        """Let `run` return `reason`."""
        if not self._end.done():
            self._end.set_result(reason)

    async def _until_ended(self, *work: Coroutine[None, None, None]) -> str:
        """Do `work` until one part of it is done or fails, or `end` is called."""
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
    """The client that has the line. As the line's listener it passes on what the device says."""

    def __init__(self, connection: Connection, dialect: Dialect) -> None:
        super().__init__(connection, dialect.name)
        self._dialect = dialect
        self._behind = False
        self._channel: LineAccess | None = None
        self._patience: asyncio.TimerHandle | None = None
        # When it last sent something, by the loop's clock.
        self.heard = -math.inf
        # Set when the line is free again.
        self.released = asyncio.Event()

    async def run(self, channel: LineAccess) -> str:
        """Carry bytes both ways."""
        self._channel = channel
        self._connection.full = self._full
        try:
            return await self._until_ended(
                self._forward(channel), self._dialect.watch(channel, self._connection.send), self._drain()
            )
        finally:
            self._connection.full = lambda _: None
            self._limit(False)

    def data_received(self, data: bytes) -> None:
        self._connection.send(self._dialect.encode(data))

    def state_changed(self, state: State) -> None:
        if state.phase == "lost":
            self.end(state.reason)

    async def _forward(self, channel: LineAccess) -> None:
        while data := await self._connection.receive():
            self.heard = asyncio.get_running_loop().time()
            # Answers to a client that does not read them must not pile up.
            await self._connection.drained()
            await self._dialect.carry(data, channel, self._connection.send)
            self._steer(channel)

    async def _drain(self) -> None:
        await self._connection.gone()
        await asyncio.sleep(DRAIN_SECONDS)

    def _full(self, behind: bool) -> None:
        self._behind = behind
        if self._channel is not None:
            self._steer(self._channel)

    def _steer(self, channel: LineAccess) -> None:
        if self._behind or self._dialect.suspended:
            channel.pause()
        else:
            channel.resume()
        self._limit(self._dialect.suspended)

    def _limit(self, suspended: bool) -> None:
        """End one that has suspended the flow, after a while."""
        if not suspended and self._patience is not None:
            self._patience.cancel()
            self._patience = None
        elif suspended and self._patience is None:
            reason = f"the flow was suspended for {SUSPENDED_SECONDS:g} s and not resumed"
            self._patience = asyncio.get_running_loop().call_later(SUSPENDED_SECONDS, self.end, reason)


class ViewerClient(_Client):
    """A client that may look on. One that does not keep up loses a part, and sees where.

    One that will send nothing (`nc ... </dev/null`) looks on all the same. That it has gone is seen when the device
    next says something; until then, it `may_be_gone`.
    """

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection, "viewer")
        connection.discard()

    @property
    def may_be_gone(self) -> bool:
        return self._connection.ended

    async def run(self, reader: TapReader) -> str:
        """Pass on what the device says."""
        return await self._until_ended(self._show(reader), self._connection.gone())

    def note(self, text: str) -> None:
        """Tell it something of the line, on a line of its own."""
        self._connection.send(notice(text))

    async def _show(self, reader: TapReader) -> None:
        while not reader.ended:
            for item in await reader.atake(None):
                if isinstance(item, Gap):
                    self.note(f"lost here, read too slowly: chunks {item.first} to {item.last}")
                elif item.direction == "rx":
                    self._connection.send(item.data)
                await self._connection.drained()


def told(text: str) -> bytes:
    """Words of the bridge, for a client that has not seen anything of the device: one line."""
    return f"fastflight: {' '.join(text.split())}\r\n".encode(errors="replace")


def notice(text: str) -> bytes:
    """Words of the bridge in the stream of a device: a line of its own, whatever stood before it."""
    return b"\r\n" + told(text)
