"""A port that copies its traffic to a tap.

`tapped(port, tap)` behaves as `port`, and feeds the tap: `rx` with the bytes of each read, `tx` with the bytes of each
write, before any answer to them. The owner of the port calls `requests.begin` and `requests.end`, so that the tap can
tell the traffic of requests from what the board sends by itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from fastflight.concurrency.portal import Portal
from fastflight.errors import TransportError
from fastflight.protocol import Conversation, Receive
from fastflight.transport.port import READ_BYTES, LineSettings, ModemLines, Port, SerialControl
from fastflight.transport.request_filter import RequestFilter
from fastflight.transport.tap import Tap

# The backlog is what the device sent before the port was opened. A port hands it over at once; a USB port within a few
# milliseconds. Bytes that the board sends in this time count as backlog too: the time of their rows is not known.
BACKLOG_SECONDS = 0.02
MAX_BACKLOG_BYTES = READ_BYTES

# Raises if this process may not write to the device now.
Guard = Callable[[], None]


def receive_backlog() -> Conversation[None]:
    """Receive the bytes that waited in a port that was just opened. Run it for at most `BACKLOG_SECONDS`."""
    received = 0
    with contextlib.suppress(TransportError):  # if the line is lost, the next call raises
        while received < MAX_BACKLOG_BYTES:
            received += len((yield Receive(BACKLOG_SECONDS)))


def unheard(data: bytes) -> None:
    """The default listener."""


def unguarded() -> None:
    """The default guard: this process may always write."""


def tapped(port: Port, tap: Tap, guard: Guard = unguarded, received: Callable[[bytes], None] = unheard) -> TappedPort:
    """Return `port` with a tap on it. The result is a `SerialControl` if `port` is one.

    `guard` is called before each write and each control of the line. It raises if this process may not do that now.
    `received` gets all bytes that are read.
    """
    if isinstance(port, SerialControl):
        return TappedSerialPort(port, port, tap, guard, received)
    return TappedPort(port, tap, guard, received)


class TappedPort:
    """A port that copies its traffic to `tap`. A write is copied before it is sent, so before any answer to it."""

    def __init__(self, port: Port, tap: Tap, guard: Guard, received: Callable[[bytes], None]) -> None:
        self._port = port
        self._guard = guard
        self._notify = received
        self._tap = tap
        # A line without a speed of its own, such as a socket, waits until it is read.
        self._can_wait = port.bytes_per_second is None
        self._reading_backlog = False
        self.requests = RequestFilter(tap)

    @contextlib.contextmanager
    def reading_backlog(self) -> Iterator[None]:
        """Mark the bytes that are received within the `with` block as backlog (`Chunk.waited`)."""
        self._reading_backlog = True
        try:
            yield
        finally:
            self._reading_backlog = False

    @property
    def portal(self) -> Portal:
        return self._port.portal

    @property
    def bytes_per_second(self) -> float | None:
        return self._port.bytes_per_second

    def close(self) -> None:
        self._port.close()

    async def aread(self, timeout: float) -> bytes:
        if self._can_wait:
            await self._tap.apace()
        data = await self._port.aread(timeout)
        self._received(data)
        return data

    def _received(self, data: bytes) -> None:
        self._notify(data)
        if self._reading_backlog:
            self._tap.feed("rx", data, waited=True)
        else:
            self.requests.feed("rx", data)

    async def alisten(self) -> None:
        """Read the line for the tap alone, until cancelled. Raises what `aread` raises, except for a timeout."""
        while True:
            await self._tap.apace()
            await self.apour(lambda _: self._can_wait and self._tap.is_ahead)

    async def apour(self, give: Callable[[bytes], object]) -> None:
        def receive(data: bytes) -> object:
            self._received(data)
            return give(data)

        await self._port.apour(receive)

    def awrite(self, data: bytes, timeout: float) -> Coroutine[Any, Any, None]:
        self._guard()
        self.requests.feed("tx", data)
        return self._port.awrite(data, timeout)

    async def adrain(self, timeout: float) -> None:
        self._guard()
        await self._port.adrain(timeout)

    async def aclose(self) -> None:
        await self._port.aclose()


class TappedSerialPort(TappedPort):
    """A tapped port that is a real serial line. It passes all control calls on to `control`."""

    def __init__(
        self, port: Port, control: SerialControl, tap: Tap, guard: Guard, received: Callable[[bytes], None]
    ) -> None:
        super().__init__(port, tap, guard, received)
        self._control = control

    @property
    def settings(self) -> LineSettings:
        return self._control.settings

    async def aconfigure(self, settings: LineSettings, timeout: float) -> None:
        self._guard()
        await self._control.aconfigure(settings, timeout)

    async def aassign(
        self, timeout: float, *, dtr: bool | None = None, rts: bool | None = None, sending_break: bool | None = None
    ) -> None:
        self._guard()
        await self._control.aassign(timeout, dtr=dtr, rts=rts, sending_break=sending_break)

    async def apurge(self, timeout: float, *, received: bool = False, unsent: bool = False) -> None:
        self._guard()
        await self._control.apurge(timeout, received=received, unsent=unsent)

    async def amodem(self, timeout: float) -> ModemLines:
        return await self._control.amodem(timeout)
