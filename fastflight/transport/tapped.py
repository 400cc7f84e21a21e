"""A port whose traffic a tap sees.

`tapped(port, tap)` is the port itself to its owner, and feeds the tap: `rx` with what a read brought, `tx` with what a
write handed to the line, before any answer to it. `requests` is told when a request has the line.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator
from typing import Any

from fastflight.errors import TransportError, TransportTimeout
from fastflight.protocol import Conversation, Receive
from fastflight.transport.port import READ_BYTES, Gathering, LineSettings, ModemLines, Port, Pouring, SerialControl
from fastflight.transport.request_filter import RequestFilter
from fastflight.transport.tap import Tap

# A port hands over what had waited in it as soon as it is opened; a USB one within a few milliseconds. A row of a board
# that talks just then has no time, either.
WAITED_SECONDS = 0.02
MAX_WAITED_BYTES = READ_BYTES
# A quiet board is waited for again after this: a timer that fires once an hour.
QUIET_SECONDS = 3600.0


def what_waited() -> Conversation[None]:
    """Receive what comes in the moment after a port was opened. Run it for at most `WAITED_SECONDS`."""
    received = 0
    with contextlib.suppress(TransportError):  # of a line that is lost, the next call tells
        while received < MAX_WAITED_BYTES:
            received += len((yield Receive(WAITED_SECONDS)))


def tapped(port: Port, tap: Tap) -> TappedPort:
    """`port`, with a tap on it; a `SerialControl` where it was one."""
    return TappedSerialPort(port, port, tap) if isinstance(port, SerialControl) else TappedPort(port, tap)


class TappedPort:
    """A port whose traffic `tap` sees. A write is seen when it is handed to the line, before any answer to it."""

    def __init__(self, port: Port, tap: Tap) -> None:
        self._port = port
        self._tap = tap
        # Where nothing paces the line but who reads it, it can wait.
        self._can_wait = port.bytes_per_second is None
        self._opening = False
        self.requests = RequestFilter(tap)

    @contextlib.contextmanager
    def opening(self) -> Iterator[None]:
        """What is received within the `with` block may have waited in the port."""
        self._opening = True
        try:
            yield
        finally:
            self._opening = False

    @property
    def bytes_per_second(self) -> float | None:
        return self._port.bytes_per_second

    def read(self, timeout: float) -> bytes:
        if self._can_wait:
            self._tap.pace()
        data = self._port.read(timeout)
        self._received(data)
        return data

    def write(self, data: bytes, timeout: float) -> None:
        self.requests.feed("tx", data)
        self._port.write(data, timeout)

    def close(self) -> None:
        self._port.close()

    async def aread(self, timeout: float) -> bytes:
        if self._can_wait:
            await self._tap.apace()
        data = await self._port.aread(timeout)
        self._received(data)
        return data

    def _received(self, data: bytes) -> None:
        if self._opening:
            self._tap.feed("rx", data, waited=True)
        else:
            self.requests.feed("rx", data)

    async def alisten(self) -> None:
        """Read the line for the tap alone, until cancelled. Fails as `aread` does, but silence is no failure."""
        if isinstance(self._port, Pouring):
            while True:
                await self._tap.apace()
                await self._port.apour(self._pour)
        while True:
            with contextlib.suppress(TransportTimeout):
                await self.aread(QUIET_SECONDS)
            # A board that floods its line is always ready: let the loop's other tasks run.
            await asyncio.sleep(0)

    def _pour(self, data: bytes) -> bool:
        self.requests.feed("rx", data)
        return self._can_wait and self._tap.is_ahead

    def awrite(self, data: bytes, timeout: float) -> Coroutine[Any, Any, None]:
        self.requests.feed("tx", data)
        return self._port.awrite(data, timeout)

    async def adrain(self, timeout: float) -> None:
        """Of a port that gathers; nothing for any other."""
        if isinstance(self._port, Gathering):
            await self._port.adrain(timeout)

    async def aclose(self) -> None:
        await self._port.aclose()


class TappedSerialPort(TappedPort):
    """A tapped port that is a real serial line: what controls it passes through."""

    def __init__(self, port: Port, control: SerialControl, tap: Tap) -> None:
        super().__init__(port, tap)
        self._control = control

    @property
    def settings(self) -> LineSettings:
        return self._control.settings

    def configure(self, settings: LineSettings, timeout: float) -> None:
        self._control.configure(settings, timeout)

    def assign(
        self, timeout: float, *, dtr: bool | None = None, rts: bool | None = None, sending_break: bool | None = None
    ) -> None:
        self._control.assign(timeout, dtr=dtr, rts=rts, sending_break=sending_break)

    def purge(self, timeout: float, *, received: bool = False, unsent: bool = False) -> None:
        self._control.purge(timeout, received=received, unsent=unsent)

    def modem(self, timeout: float) -> ModemLines:
        return self._control.modem(timeout)

    async def aconfigure(self, settings: LineSettings, timeout: float) -> None:
        await self._control.aconfigure(settings, timeout)

    async def aassign(
        self, timeout: float, *, dtr: bool | None = None, rts: bool | None = None, sending_break: bool | None = None
    ) -> None:
        await self._control.aassign(timeout, dtr=dtr, rts=rts, sending_break=sending_break)

    async def apurge(self, timeout: float, *, received: bool = False, unsent: bool = False) -> None:
        await self._control.apurge(timeout, received=received, unsent=unsent)

    async def amodem(self, timeout: float) -> ModemLines:
        return await self._control.amodem(timeout)
