"""Exclusive access to a device's line, for a bridge.

One holder at a time has the line; another caller gets a `BusyError` at once that names the holder. The requests of a
server and the writer of the bridge exclude each other.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from weakref import WeakKeyDictionary

from fastflight.bridge.channel import Driven, Listener, PortChannel
from fastflight.bridge.control import CONTROL_SECONDS
from fastflight.device import Device
from fastflight.errors import TransportError
from fastflight.transport import Port
from fastflight.transport.chunk_buffer import TapReader


class DeviceFront:
    """A device, as the clients of a bridge use it. Use it on the device's shard."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._driven: WeakKeyDictionary[Port, Driven] = WeakKeyDictionary()

    @property
    def name(self) -> str:
        """The name of the device, for people."""
        return self._device.name

    @contextlib.asynccontextmanager
    async def hold(self, holder: str, listener: Listener) -> AsyncIterator[PortChannel]:
        """Hold the line exclusively during an `async with` block. Errors for other callers name `holder`.

        Raises `BusyError` at once if the line has another holder, `TransportError` if it cannot be opened or is lost
        during the block. Restores the serial settings at the end.
        """
        async with self._device.aline(holder, timeout=0) as port:
            channel = PortChannel(port, listener, self._driven.setdefault(port, Driven.at_first(self._device.address)))
            reading = asyncio.ensure_future(channel.run())
            try:
                async with restore_settings(channel):
                    yield channel
            finally:
                reading.cancel()
                await asyncio.wait({reading})
            if channel.failure is not None:
                raise channel.failure

    def watch(self) -> AbstractContextManager[TapReader]:
        """Read what crosses the line during a `with` block, whether or not somebody holds the line."""
        return self._device.listen()

    async def run(self, changed: Callable[[str], None]) -> None:
        """Keep the line open and read until cancelled. Call `changed` with the reason of each loss, and when it ends.

        At the end of a loss the reason is empty. While the device cannot be opened, each attempt fails for the same
        reason: it is reported once.
        """
        loop, wakeup = asyncio.get_running_loop(), asyncio.Event()
        last, outages = "", self._device.outages
        nudged = self._device.tap.on_nudge(lambda: loop.call_soon_threadsafe(wakeup.set))
        with nudged, self._device.listen():
            while True:
                troubles = []
                # A device that was lost and is back again has no trouble, but one more outage.
                if self._device.trouble or self._device.outages != outages:
                    troubles.append(self._device.trouble or "the line was lost")
                outages = self._device.outages
                if self._device.is_open:
                    troubles.append("")
                for trouble in troubles:
                    if trouble != last:
                        changed(trouble)
                    last = trouble
                await wakeup.wait()
                wakeup.clear()


@contextlib.asynccontextmanager
async def restore_settings(channel: PortChannel) -> AsyncIterator[None]:
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
