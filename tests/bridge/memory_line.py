"""A device line in memory: an echo, or whatever `answer` makes of what is written; it can be lost and come back."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastflight.bridge import Bridge, LineFront, Ports, State
from fastflight.bridge.line import Driven, Listener
from fastflight.errors import TransportClosed
from fastflight.transport import LineSettings, ModemLines, SerialControl
from fastflight.transport.tap import Tap

# What the device takes before what it has said was fetched.
WINDOW_BYTES = 1 << 20
ALL_PORTS = Ports(rfc2217=0, socket=0, viewers=0)


class MemoryLine:
    name = "board"

    def __init__(
        self, answer: Callable[[bytes], bytes] = lambda data: data, control: SerialControl | None = None
    ) -> None:
        self.tap = Tap()
        self.state = State("connecting")
        self.control = control
        self.driven = Driven()
        self.written = bytearray()
        self.retried = 0
        self._answer = answer
        self._listener: Listener | None = None
        self._said: deque[bytes] = deque()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._taken = asyncio.Event()
        self.paused = False
        self._written = asyncio.Event()

    def attach(self, listener: Listener | None) -> None:
        self._listener = listener

    async def run(self) -> None:
        self.tell(State("open"))
        while True:
            await self._flowing.wait()
            if self._said:
                data = self._said.popleft()
                self.tap.feed("rx", data)
                if self._listener is not None:
                    self._listener.data_received(data)
            self._taken.set()
            if not self._said:
                self._flowing.clear()
            await asyncio.sleep(0)

    def say(self, data: bytes) -> None:
        """Let the device speak."""
        self._said.append(data)
        if not self.paused:
            self._flowing.set()

    async def write(self, data: bytes) -> None:
        if self.state.phase != "open":
            raise TransportClosed("lost")
        self.tap.feed("tx", data)
        self.written += data
        self._written.set()
        if answer := self._answer(data):
            self.say(answer)
        while sum(map(len, self._said)) > WINDOW_BYTES:
            self._taken.clear()
            await self._taken.wait()

    async def wrote(self) -> None:
        """Wait until more is written to the device."""
        self._written.clear()
        await self._written.wait()

    def pause(self) -> None:
        self.paused = True
        self._flowing.clear()

    def resume(self) -> None:
        self.paused = False
        if self._said:
            self._flowing.set()

    def retry(self) -> None:
        self.retried += 1
        if self.state.phase == "lost":
            self.tell(self.state)

    def tell(self, state: State) -> None:
        self.state = state
        if self._listener is not None:
            self._listener.state_changed(state)


class MemoryControl:
    """A serial line's control, which notes what it was told."""

    def __init__(self) -> None:
        self.settings = LineSettings()
        self.lines = ModemLines(cts=True)
        self.told: list[Any] = []

    async def aconfigure(self, settings: LineSettings, timeout: float) -> None:
        self.told.append(settings)
        self.settings = settings

    async def aassign(
        self, timeout: float, *, dtr: bool | None = None, rts: bool | None = None, sending_break: bool | None = None
    ) -> None:
        values = {"dtr": dtr, "rts": rts, "break": sending_break}
        self.told.append({name: value for name, value in values.items() if value is not None})

    async def apurge(self, timeout: float, *, received: bool = False, unsent: bool = False) -> None:
        self.told.append(("purge", received, unsent))

    async def amodem(self, timeout: float) -> ModemLines:
        return self.lines

    def _only_async(self, *_: object, **__: object) -> Any:
        raise AssertionError("a bridge never blocks its loop")

    configure = assign = purge = modem = _only_async


@asynccontextmanager
async def bridged(line: MemoryLine, ports: Ports = ALL_PORTS, **options: Any) -> AsyncIterator[Bridge]:
    """A bridge in front of the line; no task of it is left afterwards."""
    before = asyncio.all_tasks()
    async with Bridge(LineFront(line), ports, **options) as bridge:
        yield bridge
    assert asyncio.all_tasks() == before
