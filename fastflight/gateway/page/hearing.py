"""What devices say, for the page: an `Ear` gives what came since it was last asked, and waits for nothing.

Beside its devices, the gateway reads the taps of their lines, which costs next to nothing. In front of a server
elsewhere it reads sessions, as any other client does, each of which is a stream of that server's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from fastflight.device import Inventory
from fastflight.errors import FastFlightError
from fastflight.gateway.backend import Backend
from fastflight.gateway.callers import ANYONE, Caller
from fastflight.transport.chunk_buffer import Chunk, Gap

# What of the past a chart begins with, as far as a line's tap has kept it.
SINCE_SECONDS = 60
# Of a session between two looks, ten a second: what a line of 10 Mbaud brings in single bytes is lost, and counted.
MAX_HEARD = 8192
# A session that failed is asked for again.
AGAIN_SECONDS = 2.0
# Streams of the server elsewhere that the pages of all callers take together, of the 256 that it has. Devices beyond
# show their state, and are heard when another one is no longer looked at.
MAX_SESSIONS = 64


class Ear(Protocol):
    """One device's traffic."""

    def rest(self) -> Sequence[Chunk | Gap]:
        """All that came since the last call."""


# Listen to the device of a name for a `with` block, on the gateway's loop.
Hear = Callable[[str], AbstractContextManager[Ear]]


def taps(inventory: Inventory) -> Hear:
    """Hear devices of this process."""

    @contextlib.contextmanager
    def hear(device: str) -> Iterator[Ear]:
        since_ns = time.time_ns() - SINCE_SECONDS * 1_000_000_000
        with inventory.device(device).listen(since_ns=since_ns) as reader:
            yield reader

    return hear


def sessions(backend: Backend, room: asyncio.Semaphore, caller: Caller = ANYONE) -> Hear:
    """Hear devices by way of their sessions, those that `caller` may have. A device waits for its place in `room`."""

    @contextlib.contextmanager
    def hear(device: str) -> Iterator[Ear]:
        heard = Heard()
        following = asyncio.ensure_future(_follow(backend, device, caller, heard, room))
        try:
            yield heard
        finally:
            following.cancel()

    return hear


class Heard:
    """Filled by a session, emptied by the page."""

    def __init__(self) -> None:
        self._items: deque[Chunk | Gap] = deque()

    def put(self, item: Chunk | Gap) -> None:
        if len(self._items) >= MAX_HEARD:
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


async def _follow(backend: Backend, device: str, caller: Caller, heard: Heard, room: asyncio.Semaphore) -> None:
    asked: dict[str, Any] = {"type": "device.session", "device": device, "reconnect": True, "flush_ms": 100}
    request = backend.decode(json.dumps({**asked, "since_seconds": SINCE_SECONDS}).encode())
    while True:
        with contextlib.suppress(FastFlightError):
            async with room, backend.read(request, caller=caller) as answer:
                async for batch, note in answer.batches:
                    if note and "gap" in note:
                        heard.put(Gap(note["gap"]["first"], note["gap"]["last"]))
                    for row in batch.to_pylist():
                        waited = row["time"] is None
                        time_ns = 0 if waited else int(row["time"].timestamp() * 1e6) * 1000
                        heard.put(Chunk(row["seq"], time_ns, row["direction"], row["data"], waited=waited))
        await asyncio.sleep(AGAIN_SECONDS)
        request = backend.decode(json.dumps(asked).encode())
