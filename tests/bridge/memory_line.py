"""A device line in memory: an echo, or whatever `answer` makes of what is written; it can be lost and come back."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import Any

from fastflight.bridge import Bridge, Ports
from fastflight.bridge.channel import Driven, Listener
from fastflight.bridge.front import restore_settings
from fastflight.concurrency import Exclusive
from fastflight.errors import TransportClosed
from fastflight.transport import LineSettings, ModemLines, SerialControl
from fastflight.transport.chunk_buffer import TapReader
from fastflight.transport.tap import Tap

# What the device takes before what it has said was fetched.
WINDOW_BYTES = 1 << 20
ALL_PORTS = Ports(rfc2217=0, socket=0, viewers=0)


class MemoryLine:
    """The front of a device, and the channel of its holder."""

    name = "board"

    def __init__(
        self, answer: Callable[[bytes], bytes] = lambda data: data, control: SerialControl | None = None
    ) -> None:
        self.tap = Tap()
        self.control = control
        self.driven = Driven()
        self.written = bytearray()
        self.trouble = ""
        self.paused = False
        self._answer = answer
        self._exclusive = Exclusive(self.name)
        self._listener: Listener | None = None
        self._changed: Callable[[str], None] = lambda trouble: None
        self._said: deque[bytes] = deque()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._taken = asyncio.Event()
        self._written = asyncio.Event()

    @asynccontextmanager
    async def hold(self, holder: str, listener: Listener) -> AsyncIterator[MemoryLine]:
        async with self._exclusive.aheld(holder, 0):
            if self.trouble:
                raise TransportClosed(self.trouble, where=self.name)
            self._listener = listener
            try:
                async with restore_settings(self):  # type: ignore[arg-type]
                    yield self
            finally:
                self._listener = None
                self.resume()

    def watch(self) -> AbstractContextManager[TapReader]:
        return nullcontext(self.tap.reader())

    async def run(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
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
        if self.trouble:
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

    def lose(self, trouble: str) -> None:
        """Lose the device, or with an empty `trouble` let it come back."""
        self.trouble = trouble
        if trouble and self._listener is not None:
            self._listener.line_lost(trouble)
        self._changed(trouble)


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


@asynccontextmanager
async def bridged(line: MemoryLine, ports: Ports = ALL_PORTS, **options: Any) -> AsyncIterator[Bridge]:
    """A bridge in front of the line; no task of it is left afterwards."""
    before = asyncio.all_tasks()
    async with Bridge(line, ports, **options) as bridge:
        yield bridge
    assert asyncio.all_tasks() == before
