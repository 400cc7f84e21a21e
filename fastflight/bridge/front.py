"""Exclusive access to a device's line, for a bridge.

One holder at a time has the line; another caller gets a `BusyError` at once that names the holder. The bridge either
has its own line (`LineFront`), or shares a device with a Flight server (`DeviceFront`). In the second case the requests
of the server and the writer of the bridge exclude each other.
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
    """A device's line, as the clients of a bridge use it."""

    @property
    def name(self) -> str:
        """The name of the device, for people."""

    def hold(self, holder: str, listener: Listener) -> AbstractAsyncContextManager[LineAccess]:
        """Hold the line exclusively during an `async with` block. Errors for other callers name `holder`.

        Raises `BusyError` at once if the line has another holder, `TransportError` if it cannot be opened or is lost
        during the block. Restores the serial settings at the end.
        """

    def watch(self) -> AbstractContextManager[TapReader]:
        """Read what crosses the line during a `with` block, whether or not somebody holds the line."""

    async def run(self, changed: Callable[[State], None]) -> None:
        """Keep the line running until cancelled. Call `changed` with each new state that becomes known."""


class LineFront:
    """A line that belongs to the bridge alone."""

    def __init__(self, line: BridgedLine) -> None:
        self._line = line
        self._exclusive = Exclusive(line.name)
        # Set when an attempt to open the line has succeeded or failed.
        self._settled = asyncio.Event()
        # The listener of the present holder.
        self._listener: Listener | None = None
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
            self._listener = listener
            try:
                async with _restore_settings(self._line):
                    yield self._line
            finally:
                self._listener = None
                self._line.resume()

    def watch(self) -> AbstractContextManager[TapReader]:
        return contextlib.nullcontext(self._line.tap.reader())

    async def run(self, changed: Callable[[State], None]) -> None:
        self._changed = changed
        self._line.attach(self)
        await self._line.run()

    def data_received(self, data: bytes) -> None:
        """Pass data of the line to the holder. While nobody holds the line, only its tap gets the data."""
        if self._listener is not None:
            self._listener.data_received(data)

    def state_changed(self, state: State) -> None:
        """Report a new state of the line to the bridge and to the holder."""
        if state.phase != "connecting":
            self._settled.set()
        self._changed(state)
        if self._listener is not None:
            self._listener.state_changed(state)


class DeviceFront:
    """A device that the bridge shares with a server."""

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
                async with _restore_settings(channel):
                    yield channel
            finally:
                reading.cancel()
                await asyncio.wait({reading})
            if channel.failure is not None:
                raise channel.failure

    def watch(self) -> AbstractContextManager[TapReader]:
        return self._device.listen()

    async def run(self, changed: Callable[[State], None]) -> None:
        """Report the device's losses and recoveries until cancelled. The device itself opens its line.

        The first opening of the device is not reported.
        """
        loop, wakeup = asyncio.get_running_loop(), asyncio.Event()
        last, outages = State("open"), self._device.outages
        with self._device.tap.on_nudge(lambda: loop.call_soon_threadsafe(wakeup.set)):
            while True:
                states = []
                # A device that was lost and is back again has no trouble, but one more outage.
                if self._device.trouble or self._device.outages != outages:
                    states.append(State("lost", self._device.trouble))
                outages = self._device.outages
                if self._device.is_open:
                    states.append(State("open"))
                for state in states:
                    # While the device cannot be opened, each attempt fails for the same reason: report it once.
                    if state != last:
                        changed(state)
                    last = state
                await wakeup.wait()
                wakeup.clear()


@contextlib.asynccontextmanager
async def _restore_settings(channel: LineAccess) -> AsyncIterator[None]:
    """Restore the serial settings at the end: the next holder expects the speed that the device was opened with."""
    before = channel.control.settings if channel.control is not None else None
    try:
        yield
    finally:
        control = channel.control
        if before is not None and control is not None:
            with contextlib.suppress(TransportError):  # a port without break, or a server that does not answer
                await control.aassign(CONTROL_SECONDS, sending_break=False)
            with contextlib.suppress(TransportError):
                if control.settings != before:
                    await control.aconfigure(before, CONTROL_SECONDS)
