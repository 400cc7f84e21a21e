"""A serial port with the test on the other side of its line, the master of a pseudo-terminal."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import pytest

from fastflight.errors import TransportTimeout
from fastflight.transport.serial_port import SerialPort
from tests.support.waiting import read_until

PATIENCE = 20.0
# For waits that are to fail.
SHORT = 0.05
# No test lives to see this: what arrives was not sent because time was up.
NEVER_MS = 10**9

FULL = b"f" * 1_000_000
# More than a terminal that is full finds room for after all.
UNHEARD = b"u" * 60_000


@dataclass
class SerialBench:
    """A serial port and the other side of its line."""

    port: SerialPort
    far: int

    def get(self, count: int) -> bytes:
        """What arrives next."""
        data = b""
        while len(data) < count:
            data += os.read(self.far, count - len(data))
        return data

    def get_until(self, mark: bytes) -> bytes:
        return read_until(lambda: os.read(self.far, 65536), mark)

    def give(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.far, data) :]


def alone(main: Coroutine[Any, Any, None]) -> None:
    """Run it, and see that it leaves no task behind."""

    async def watched() -> None:
        await main
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(watched())


def fill(bench: SerialBench) -> None:
    """Write until the line takes no more. A terminal makes room in its own time: until an attempt takes none."""
    refused = ""
    while str(len(FULL)) not in refused:
        with pytest.raises(TransportTimeout) as caught:
            bench.port.write(FULL, SHORT)
        refused = caught.value.hint


def hang_up(bench: SerialBench) -> None:
    """Close the other side; its number stays taken, for the fixture to close."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, bench.far)
    os.close(null)


async def awaited(call: Callable[[], Awaitable[object]]) -> object:
    return await call()


class running_loop:
    """A loop that runs in a thread of its own. Enter it to get a function that runs a coroutine there."""

    def __enter__(self) -> Callable[[Coroutine[Any, Any, Any]], Any]:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        return lambda main: asyncio.run_coroutine_threadsafe(main, self._loop).result(PATIENCE)

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
