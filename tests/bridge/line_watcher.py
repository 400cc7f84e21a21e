"""Somebody at a line's other side: hears what it says, knows its states, and waits for either."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from fastflight.bridge.line import State
from fastflight.bridge.upstream import Upstream


class LineWatcher:
    """The listener of a line."""

    def __init__(self, line: Upstream) -> None:
        self.line = line
        self.heard = bytearray()
        self.states: list[State] = []
        self._news = asyncio.Event()
        line.attach(self)

    def data_received(self, data: bytes) -> None:
        self.heard += data
        self._news.set()

    def state_changed(self, state: State) -> None:
        self.states.append(state)
        self._news.set()

    async def read_until(self, mark: bytes) -> bytes:
        """What was said up to `mark`, which is taken as well."""
        while mark not in self.heard:
            await self._more()
        end = self.heard.index(mark) + len(mark)
        said = bytes(self.heard[:end])
        del self.heard[:end]
        return said

    async def becomes(self, phase: str) -> State:
        """The next state of that phase; those before it are forgotten."""
        while True:
            while not self.states:
                await self._more()
            state = self.states.pop(0)
            if state.phase == phase:
                return state

    async def ask(self, data: bytes, mark: bytes) -> bytes:
        """What is said to `data`, up to `mark`."""
        await self.line.write(data)
        return await self.read_until(mark)

    async def _more(self) -> None:
        self._news.clear()
        await self._news.wait()


@contextlib.asynccontextmanager
async def watched(line: Upstream) -> AsyncIterator[LineWatcher]:
    """The line, run for an `async with` block."""
    watcher = LineWatcher(line)
    task = asyncio.ensure_future(line.run())
    try:
        async with asyncio.timeout(30):
            yield watcher
    finally:
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled(), task.exception()
