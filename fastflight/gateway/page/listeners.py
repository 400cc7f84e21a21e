"""Reads the output of devices for the page: a `DeviceListener` returns what came since the last call, without waiting.

The gateway reads the taps of the devices' lines, which costs next to nothing. In a cluster, where other servers have
devices too, it reads sessions, like any other client; each takes one stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from fastflight.device import Device, Inventory
from fastflight.errors import FastFlightError
from fastflight.gap import Gap
from fastflight.gateway.backend import Backend
from fastflight.transport.chunk_buffer import Chunk, TapReader

# How much of the past a chart starts with, if the tap of the line still has it.
SINCE_SECONDS = 60
# Chunks of a session between two ticks, of which there are ten a second. More are dropped, and counted as lost.
MAX_CHUNKS = 8192
# Before a session that failed is opened again.
RETRY_SECONDS = 2.0
# Streams that all pages together take in a cluster, of the 256 of a server. More devices show only their state, until
# another device is no longer watched.
MAX_SESSIONS = 64


class DeviceListener(Protocol):
    """The traffic of one device."""

    def rest(self) -> Sequence[Chunk | Gap]:
        """Return all that came since the last call."""


# Listens to the device with this name for a `with` block, on the gateway's loop.
OpenListener = Callable[[str], AbstractContextManager[DeviceListener]]


def tap_listeners(inventory: Inventory) -> OpenListener:
    """Listen to devices of this process, at the taps of their lines."""

    return lambda device: TapListener(inventory, device)


class TapListener(contextlib.ExitStack):
    """Listens to the device that has a name now: it may be removed, and replaced by another one of the same name."""

    def __init__(self, inventory: Inventory, name: str) -> None:
        super().__init__()
        self._inventory = inventory
        self._name = name
        self._device: Device | None = None
        self._reader: TapReader | None = None

    def rest(self) -> Sequence[Chunk | Gap]:
        device = self._inventory.find(self._name)
        if device is not self._device:
            self.close()
            since_ns = time.time_ns() - SINCE_SECONDS * 1_000_000_000
            self._device = device
            self._reader = None if device is None else self.enter_context(device.listen(since_ns=since_ns))
        return () if self._reader is None else self._reader.rest()


def session_listeners(backend: Backend, room: asyncio.Semaphore) -> OpenListener:
    """Listen to devices through sessions. Each session waits for a place in `room`."""

    @contextlib.contextmanager
    def open_listener(device: str) -> Iterator[DeviceListener]:
        listener = SessionListener()
        reading = asyncio.ensure_future(_read_sessions(backend, device, listener, room))
        try:
            yield listener
        finally:
            reading.cancel()

    return open_listener


class SessionListener:
    """A bounded queue between a session and the page. When it is full, its content becomes one `Gap`."""

    def __init__(self) -> None:
        self._items: deque[Chunk | Gap] = deque()

    def put(self, item: Chunk | Gap) -> None:
        if len(self._items) >= MAX_CHUNKS:
            last = item.last if isinstance(item, Gap) else item.seq
            first = self._items[0]
            self._items.clear()
            self._items.append(Gap(first.first if isinstance(first, Gap) else first.seq, last))
        else:
            self._items.append(item)

    def rest(self) -> Sequence[Chunk | Gap]:
        items = list(self._items)
        self._items.clear()
        return items


async def _read_sessions(backend: Backend, device: str, listener: SessionListener, room: asyncio.Semaphore) -> None:
    keys: dict[str, Any] = {"type": "device.session", "device": device, "reconnect": True, "flush_ms": 100}
    request = backend.make_request({**keys, "since_seconds": SINCE_SECONDS})
    while True:
        with contextlib.suppress(FastFlightError):
            async with room, backend.read(request) as answer:
                async for batch, note in answer.batches:
                    if note and "gap" in note:
                        listener.put(Gap.of(note["gap"]))
                    for row in batch.to_pylist():
                        waited = row["time"] is None
                        time_ns = 0 if waited else int(row["time"].timestamp() * 1e6) * 1000
                        listener.put(Chunk(row["seq"], time_ns, row["direction"], row["data"], waited=waited))
        await asyncio.sleep(RETRY_SECONDS)
        request = backend.make_request(keys)
