"""Who may use a device's line: one holder at a time, whoever asks second is told at once who that is.

A bridge stands in front of a line of its own (`LineFront`), or of a device that it shares with a Flight server
(`DeviceFront`), whose requests and clients then keep each other out.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Protocol
from weakref import WeakKeyDictionary

from fastflight.bridge.channel import PortChannel
from fastflight.bridge.control import CONTROL_SECONDS
from fastflight.bridge.line import BridgedLine, Driven, LineAccess, Listener, State
from fastflight.concurrency import Exclusive
from fastflight.device import Device
from fastflight.errors import TransportClosed, TransportError
from fastflight.transport import Port
from fastflight.transport.chunk_buffer import TapReader


class Front(Protocol):
    """A device's line, as a bridge's clients get at it."""

    @property
    def name(self) -> str:
        """The device as people know it."""

    def hold(self, holder: str, listener: Listener) -> AbstractAsyncContextManager[LineAccess]:
        """Have the line for an `async with` block; `holder` is what others are told meanwhile.

        `BusyError`, at once, when somebody else has it. `TransportError` when it could not be opened, or was lost
        meanwhile. Serial settings are put back as they were found.
        """

    def watch(self) -> AbstractContextManager[TapReader]:
        """See what crosses the line, for a `with` block; it is read meanwhile whether or not somebody holds it."""

    async def run(self, changed: Callable[[State], None]) -> None:
        """Keep up what is behind until cancelled; `changed` is told how the line is, where that is known."""


class LineFront:
    """A line of the bridge's own."""

    def __init__(self, line: BridgedLine) -> None:
        self._line = line
        self._exclusive = Exclusive(line.name)
        self._settled = asyncio.Event()
        self._holding: Listener | None = None
        self._changed: Callable[[State], None] = lambda _: None

    @property
    def name(self) -> str:
        return self._line.name

    @contextlib.asynccontextmanager
    async def hold(self, holder: str, listener: Listener) -> AsyncIterator[LineAccess]:
        async with self._exclusive.aheld(holder, 0):
            if self._line.state.phase != "open":
                self._settled.clear()
                self._line.retry()
                await self._settled.wait()
            if self._line.state.phase == "lost":
                raise TransportClosed(
                    f"the device is not there: {self._line.state.reason}",
                    where=self.name,
                    hint="It will be opened as soon as it is back",
                )
            self._holding = listener
            try:
                async with _as_found(self._line):
                    yield self._line
            finally:
                self._holding = None
                self._line.resume()

    def watch(self) -> AbstractContextManager[TapReader]:
        return contextlib.nullcontext(self._line.tap.reader())

    async def run(self, changed: Callable[[State], None]) -> None:
        self._changed = changed
        self._line.attach(self)
        await self._line.run()

    def data_received(self, data: bytes) -> None:
        """As the line's listener: what nobody holds the line for is seen by the tap alone."""
        if self._holding is not None:
            self._holding.data_received(data)

    def state_changed(self, state: State) -> None:
        """As the line's listener."""
        if state.phase != "connecting":
            self._settled.set()
        self._changed(state)
        if self._holding is not None:
            self._holding.state_changed(state)


class DeviceFront:
    """A device that is shared with a server."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._driven: WeakKeyDictionary[Port, Driven] = WeakKeyDictionary()

    @property
    def name(self) -> str:
        return self._device.name

    @contextlib.asynccontextmanager
    async def hold(self, holder: str, listener: Listener) -> AsyncIterator[LineAccess]:
        async with self._device.aline(holder, timeout=0) as port:
            channel = PortChannel(port, listener, self._driven.setdefault(port, Driven.at_first(self._device.address)))
            reading = asyncio.ensure_future(channel.run())
            try:
                async with _as_found(channel):
                    yield channel
            finally:
                reading.cancel()
                await asyncio.wait({reading})
            if channel.failure is not None:
                raise channel.failure

    def watch(self) -> AbstractContextManager[TapReader]:
        return self._device.listen()

    async def run(self, changed: Callable[[State], None]) -> None:
        """Watch over the device, which looks after itself. That it is opened when it is first wanted is no news."""
        loop, news = asyncio.get_running_loop(), asyncio.Event()
        told, outages = State("open"), self._device.outages
        with self._device.tap.on_nudge(lambda: loop.call_soon_threadsafe(news.set)):
            while True:
                states = []
                # Lost and back again since the last look, it has no trouble any more.
                if self._device.trouble or self._device.outages != outages:
                    states.append(State("lost", self._device.trouble))
                outages = self._device.outages
                if self._device.is_open:
                    states.append(State("open"))
                for state in states:
                    # While it cannot be opened, each attempt fails for the same reason.
                    if state != told:
                        changed(state)
                    told = state
                await news.wait()
                news.clear()


@contextlib.asynccontextmanager
async def _as_found(channel: LineAccess) -> AsyncIterator[None]:
    """Put the serial settings back at the end: what comes next expects the speed that the device was opened with."""
    before = channel.control.settings if channel.control is not None else None
    try:
        yield
    finally:
        control = channel.control
        if before is not None and control is not None:
            with contextlib.suppress(TransportError):  # a port that has no break, or a server that does not answer
                await control.aassign(CONTROL_SECONDS, sending_break=False)
            with contextlib.suppress(TransportError):
                if control.settings != before:
                    await control.aconfigure(before, CONTROL_SECONDS)
