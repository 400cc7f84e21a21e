"""From one event loop to another: an async iterator that is iterated on a shard, for a coroutine elsewhere.

`across` reads ahead until `max_bytes` are waiting, or as many as the shard's governor has, and hands all that waits
over in one lot, as `drain` does for threads. The iterator's end is the reader's end; its failure, of any kind, is
raised to the reader after the items before it. Closing the reader cancels the iteration and returns when its clean-up
has run. On its own loop it costs nothing.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Generic, TypeVar

from fastflight.concurrency.failure import failure_of
from fastflight.concurrency.governor import Governor
from fastflight.concurrency.shard import CLOSE_SECONDS, Shard
from fastflight.errors import Stopped

T = TypeVar("T")


async def across(
    shard: Shard, begin: Callable[[], AsyncIterator[T]], *, max_bytes: int, size_of: Callable[[T], int]
) -> AsyncGenerator[T, None]:
    """Iterate on `shard` what `begin` gives there."""
    if shard.loop is asyncio.get_running_loop():
        items = begin()
        try:
            async for item in items:
                yield item
        finally:
            await _close(items)
        return
    crossing = _Crossing[T](max_bytes, size_of, shard.governor)
    running = shard.submit(crossing.produce(begin))
    running.add_done_callback(crossing.has_ended)
    try:
        while lot := await crossing.take():
            for item in lot:
                yield item
    finally:
        running.cancel()
        await crossing.wait_gone()


class _Crossing(Generic[T]):
    """What waits between the loops, guarded by `_lock`. Made on the reader's loop."""

    def __init__(self, max_bytes: int, size_of: Callable[[T], int], governor: Governor) -> None:
        self._max_bytes = max_bytes
        self._size_of = size_of
        self._lock = threading.Lock()
        self._waiting: list[T] = []
        self._bytes = 0
        self._taken = 0
        self._account = governor.account()
        self._begun = False
        self._ended = False
        # Nobody reads any more, whether or not the producer is gone.
        self._closed = False
        self._error: BaseException | None = None
        self._reader = asyncio.get_running_loop()
        self._arrived = asyncio.Event()
        self._gone = asyncio.Event()
        # The producer's own.
        self._producer: asyncio.AbstractEventLoop | None = None
        self._room = asyncio.Event()

    async def produce(self, begin: Callable[[], AsyncIterator[T]]) -> None:
        """On the shard: iterate, ahead of the reader."""
        self._begun = True
        self._producer = asyncio.get_running_loop()
        try:
            items = begin()
            try:
                async for item in items:
                    await self._give(item)
            finally:
                await _close(items)
        except BaseException as raised:
            self._end(failure_of(raised))
        else:
            self._end(None)

    def has_ended(self, running: concurrent.futures.Future[None]) -> None:
        """The producer's future is done; where it never began, nobody else says so."""
        if not self._begun:
            self._end(Stopped("the event loop is closed"))

    async def take(self) -> list[T]:
        """All that waits, at least one; empty at the end. Raises what ended it."""
        while True:
            with self._lock:
                lot, self._waiting, self._taken, self._bytes = self._waiting, [], self._bytes, 0
                self._account.hold(self._taken)
                ended = self._ended
                if not lot and not ended:
                    self._arrived.clear()
            if lot or ended:
                break
            await self._arrived.wait()
        if self._producer is not None:
            _wake(self._producer, self._room)
        if not lot and self._error is not None:
            raise self._error
        return lot

    async def wait_gone(self) -> None:
        """Wait until the iterator's clean-up has run."""
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._gone.wait()
        finally:  # the wait may be cancelled
            with self._lock:
                self._closed = True
                self._waiting.clear()
                self._error = None  # it holds frames, and they what they had in hand
                self._account.hold(0)

    async def _give(self, item: T) -> None:
        size = self._size_of(item)
        with self._lock:
            if self._closed:
                raise Stopped("nobody takes the rest")
            self._waiting.append(item)
            self._bytes += size
            full = not self._account.hold(self._bytes + self._taken) or self._bytes >= self._max_bytes
            if full:
                self._room.clear()
        _wake(self._reader, self._arrived)
        if full:
            await self._room.wait()

    def _end(self, error: BaseException | None) -> None:
        with self._lock:
            self._ended, self._error = True, None if self._closed else error
        _wake(self._reader, self._arrived)
        _wake(self._reader, self._gone)


def _wake(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed, and who waits there with it
        loop.call_soon_threadsafe(event.set)


async def _close(items: object) -> None:
    aclose = getattr(items, "aclose", None)
    if aclose is not None:
        await aclose()
