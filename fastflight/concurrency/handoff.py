"""From an async producer to a blocking consumer.

`drain` iterates an async iterator on a shard, ahead of the reader, until `max_bytes` are waiting; the reader takes all
that waits in one lot. The price of crossing threads is paid per lot: one lock round, and a wake-up only where the other
side sleeps. With one lot in the reader's hands and the next one waiting, twice `max_bytes` and two items may be held.

The iterator's end is the reader's end. Its failure, of any kind, is raised to the reader after the items before it.
Closing the reader cancels the producer and waits until the iterator's own clean-up has run.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Generator
from typing import Generic, TypeVar, cast

from fastflight.concurrency.shard import Shard
from fastflight.errors import FastFlightError, Stopped

T = TypeVar("T")

# How often a waiting reader asks whether its result is still wanted.
POLL_SECONDS = 0.02
# How long a closed reader waits for the iterator's clean-up: a board's recovery takes about two.
CLOSE_SECONDS = 5.0
# Items after which the producer lets the loop's other tasks run, should the iterator never suspend by itself.
ITEMS_PER_TURN = 16


def always() -> bool:
    """For readers who cannot go away."""
    return True


def drain(
    shard: Shard,
    items: AsyncIterator[T],
    *,
    max_bytes: int,
    size_of: Callable[[T], int],
    still_wanted: Callable[[], bool] = always,
) -> Generator[T, None, None]:
    """Iterate `items` on `shard`, from now on, and give them to the calling thread.

    While the reader waits, `still_wanted` is asked every `POLL_SECONDS`; `Stopped` is raised once it says no. It may
    also raise. Close the generator, or drop it, to cancel the iteration.
    """
    generator = _drain(_HandOff(shard, items, max_bytes, size_of), still_wanted)
    next(generator)  # from here on, closing it runs its `finally`: the iterator is closed even if never read
    return generator


def _drain(handoff: _HandOff[T], still_wanted: Callable[[], bool]) -> Generator[T, None, None]:
    handoff.start()
    try:
        yield cast(T, None)
        while lot := handoff.take(still_wanted):
            yield from lot
    finally:
        handoff.close()


class _HandOff(Generic[T]):
    """The waiting items and their two sides. What both sides touch is guarded by `_changed`."""

    def __init__(self, shard: Shard, items: AsyncIterator[T], max_bytes: int, size_of: Callable[[T], int]) -> None:
        self._shard = shard
        self._items = items
        self._max_bytes = max_bytes
        self._size_of = size_of
        self._changed = threading.Condition()
        self._waiting: list[T] = []
        self._bytes = 0
        self._ended = False
        self._error: BaseException | None = None
        self._reader_sleeps = False
        self._producer_sleeps = False
        self._closed = False
        # The producer's own, touched on the loop only.
        self._room = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        # Set once the iterator's clean-up has run.
        self._gone = threading.Event()

    def start(self) -> None:
        self._shard.submit(self._produce())

    def take(self, still_wanted: Callable[[], bool]) -> list[T]:
        """All that waits; blocks for at least one. Empty at the end; raises what ended it."""
        while True:
            with self._changed:
                if not self._waiting and not self._ended:
                    self._reader_sleeps = True
                    self._changed.wait(POLL_SECONDS)
                    self._reader_sleeps = False
                if self._waiting or self._ended:
                    lot, self._waiting, self._bytes = self._waiting, [], 0
                    wake, self._producer_sleeps = self._producer_sleeps, False
                    break
            if not still_wanted():
                raise Stopped("nobody wants the rest")
            if not self._shard.running:
                raise Stopped("the event loop has ended", where=self._shard.name)
        if wake:
            self._call_soon(self._room.set)
        if not lot and self._error is not None:
            raise self._error
        return lot

    def close(self) -> None:
        """Cancel the producer if it still runs, and wait for its clean-up."""
        with self._changed:
            self._closed = True
            self._waiting = []
        if not self._gone.is_set():
            self._call_soon(self._cancel)
            self._gone.wait(CLOSE_SECONDS if self._shard.running else 0)

    def _cancel(self) -> None:
        if self._task is not None:  # else it has not begun, and will see that it is closed
            self._task.cancel()

    async def _produce(self) -> None:
        self._task = asyncio.current_task()
        error: BaseException | None = None
        try:
            try:
                if not self._closed:
                    await self._iterate()
            finally:
                await self._close_items()
        except asyncio.CancelledError as cancelled:
            error = Stopped("the source was cancelled", hint="Ask again")
            error.__cause__ = cancelled
        except Exception as raised:
            error = raised
        except BaseException as raised:
            error = FastFlightError(f"the source raised {type(raised).__name__}")
            error.__cause__ = raised
        finally:
            self._task = None  # a late cancel finds nothing to cancel
        with self._changed:
            self._ended, self._error = True, error
            self._changed.notify()
        self._gone.set()

    async def _iterate(self) -> None:
        turn = 0
        async for item in self._items:
            size = self._size_of(item)
            with self._changed:
                self._waiting.append(item)
                self._bytes += size
                if self._reader_sleeps:
                    self._changed.notify()
                full = self._producer_sleeps = self._bytes >= self._max_bytes
                if full:
                    self._room.clear()
            turn += 1
            if full:
                await self._room.wait()
            elif turn % ITEMS_PER_TURN == 0:
                await asyncio.sleep(0)

    async def _close_items(self) -> None:
        aclose = getattr(self._items, "aclose", None)
        if aclose is not None:
            await aclose()

    def _call_soon(self, callback: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and its tasks with it
            self._shard.loop.call_soon_threadsafe(callback)
