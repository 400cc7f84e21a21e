"""From an async producer to a reader elsewhere: a thread that blocks, or a coroutine of another loop.

`drain` and `adrain` iterate an async iterator on a shard, ahead of the reader, until `max_bytes` are waiting, or fewer
where the shard's governor says that memory is scarce; the reader takes all that waits in one lot. The price of crossing
threads is paid per lot: one lock round, and a wake-up only where the other side sleeps. With one lot in the reader's
hands and the next one waiting, twice `max_bytes` and two items may be held.

The iterator's end is the reader's end. Its failure, of any kind, is raised to the reader after the items before it.
Closing the reader cancels the producer and waits until the iterator's own clean-up has run.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from functools import partial
from typing import Generic, TypeAlias, TypeVar, cast

from fastflight.concurrency.failure import failure_of
from fastflight.concurrency.governor import STEP_BYTES
from fastflight.concurrency.lookout import Watch
from fastflight.concurrency.shard import Shard
from fastflight.concurrency.turn import Turn
from fastflight.errors import Stopped

T = TypeVar("T")

# A reader that has waited for so long is idle, and left to the lookout; a busy one is not worth telling it.
IDLE_SECONDS = 0.02
# How often an idle reader looks whether the loop is still there at all: one that is closed says so by itself.
SHARD_SECONDS = 1.0
# How long a closed reader waits for the iterator's clean-up: a board's recovery takes about two.
CLOSE_SECONDS = 5.0
# Items after which the producer lets the loop's other tasks run, should the iterator never suspend by itself.
ITEMS_PER_TURN = 16


# Takes what is to be called when the reader is to end, None once there is nothing to call any more.
WhenStopped: TypeAlias = Callable[[Callable[[], object] | None], object]


def always() -> bool:
    """For readers who cannot go away."""
    return True


def _never(tell: Callable[[], object] | None) -> None:
    """For readers whom nobody stops."""


def drain(
    shard: Shard,
    items: AsyncIterator[T],
    *,
    max_bytes: int,
    size_of: Callable[[T], int],
    still_wanted: Callable[[], bool] = always,
) -> Generator[T, None, None]:
    """Iterate `items` on `shard`, from now on, and give them to the calling thread.

    While the reader waits, `still_wanted` is asked every 40 ms or so, by another thread; `Stopped` is raised
    once it says no. It may also raise. Close the generator, or drop it, to cancel the iteration.
    """
    generator = _each(drain_lots(shard, items, max_bytes=max_bytes, size_of=size_of, still_wanted=still_wanted))
    next(generator)
    return generator


def drain_lots(
    shard: Shard,
    items: AsyncIterator[T],
    *,
    max_bytes: int,
    size_of: Callable[[T], int],
    still_wanted: Callable[[], bool] = always,
    when_stopped: WhenStopped = _never,
) -> Generator[list[T], None, None]:
    """As `drain`, for a reader that can use all items that wait, at least one, at once.

    `when_stopped` is given what cancels the iteration from any thread, whatever the reader does: what waits is dropped
    then, and the reader gets an end or an error, and must know by itself that it is none of the iterator's.
    """
    generator = _drain(shard, items, max_bytes, size_of, still_wanted, when_stopped)
    next(generator)  # from here on, closing it runs its `finally`: the iterator is closed even if never read
    return generator


def adrain(shard: Shard, items: AsyncIterator[T], *, max_bytes: int, size_of: Callable[[T], int]) -> Drained[T]:
    """Iterate `items` on `shard`, from now on, and give them to the coroutine that asks, on its own loop.

    Close what is returned (`aclose`) to cancel the iteration, also after a cancelled `anext`.
    """
    return Drained(shard, items, max_bytes, size_of)


class Drained(AsyncIterator[T], Generic[T]):
    """The reader's side on an event loop, the one that runs when it is made."""

    def __init__(self, shard: Shard, items: AsyncIterator[T], max_bytes: int, size_of: Callable[[T], int]) -> None:
        self._told = asyncio.Event()
        self._lot: Iterator[T] = iter(())
        self._turn = Turn()
        tell = partial(_tell, asyncio.get_running_loop(), self._told)
        self._handoff = _HandOff(shard, items, max_bytes, size_of, tell)
        self._handoff.start()

    def __aiter__(self) -> Drained[T]:
        return self

    async def __anext__(self) -> T:
        if self._turn.over:
            await self._turn.leave()
        for item in self._lot:
            return item
        self._lot = iter(await self._next_lot())
        for item in self._lot:
            return item
        raise StopAsyncIteration

    async def _next_lot(self) -> list[T]:
        while (lot := self._handoff.take()) is None:
            await self._told.wait()
            self._told.clear()
        return lot

    async def aclose(self) -> None:
        """Cancel the producer if it still runs, and wait for its clean-up."""
        self._lot = iter(())
        if self._handoff.cancel():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    while not self._handoff.gone.is_set():
                        await self._told.wait()
                        self._told.clear()


def _tell(loop: asyncio.AbstractEventLoop, told: asyncio.Event) -> None:
    with contextlib.suppress(RuntimeError):  # the reader's loop is closed: nobody reads
        loop.call_soon_threadsafe(told.set)


def _each(lots: Generator[list[T], None, None]) -> Generator[T, None, None]:
    try:
        yield cast(T, None)
        for lot in lots:
            yield from lot
    finally:
        lots.close()


def _drain(
    shard: Shard,
    items: AsyncIterator[T],
    max_bytes: int,
    size_of: Callable[[T], int],
    still_wanted: Callable[[], bool],
    when_stopped: WhenStopped,
) -> Generator[list[T], None, None]:
    told = threading.Event()
    handoff = _HandOff(shard, items, max_bytes, size_of, told.set)
    handoff.start()
    try:
        when_stopped(handoff.cancel)
        yield []
        while True:
            while (lot := handoff.take()) is None:
                _wait(told, shard, still_wanted)
            if not lot:
                return
            yield lot
    finally:
        when_stopped(None)
        if handoff.cancel():
            handoff.gone.wait(CLOSE_SECONDS if shard.running else 0)


def _wait(told: threading.Event, shard: Shard, still_wanted: Callable[[], bool]) -> None:
    """Return when there is news; raise when nobody wants it, or none will come."""
    if not told.wait(IDLE_SECONDS):
        watch = Watch(still_wanted, told.set)
        shard.lookout.add(watch)
        try:
            while not told.wait(SHARD_SECONDS):
                if not shard.running:
                    raise Stopped("the event loop has ended", where=shard.name)
        finally:
            shard.lookout.remove(watch)
        if watch.why is not None:
            raise watch.why
        if watch.in_vain:
            raise Stopped("nobody wants the rest")
    told.clear()


class _HandOff(Generic[T]):
    """The waiting items, and the producer's side. What both sides touch is guarded by `_lock`.

    `tell` is called from the loop when a reader that was given nothing should ask again, and when `gone` is set: the
    iterator's clean-up has run.

    An error holds the frames that it went through, and with them the batches that these had in hand. So it is kept for
    a reader only, and by nothing that it holds itself: memory would not come back before Python looks for cycles, which
    it does by the number of objects, however large.
    """

    def __init__(
        self,
        shard: Shard,
        items: AsyncIterator[T],
        max_bytes: int,
        size_of: Callable[[T], int],
        tell: Callable[[], object],
    ) -> None:
        self._shard = shard
        self._items = items
        self._max_bytes = max_bytes
        self._size_of = size_of
        self._tell = tell
        self._lock = threading.Lock()
        self._waiting: list[T] = []
        self._bytes = 0
        # What the reader took last, and may still hold.
        self._taken = 0
        self._account = shard.governor.account()
        # From so many bytes on it is looked whether there is room for more.
        self._mark = 0
        self._ended = False
        self._error: BaseException | None = None
        self._reader_sleeps = False
        self._producer_sleeps = False
        self._closed = False
        # The producer's own, touched on the loop only.
        self._room = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.gone = threading.Event()

    def start(self) -> None:
        """Begin to iterate."""
        self._shard.submit(self._produce())

    def take(self) -> list[T] | None:
        """All that waits; None if there is nothing yet. Empty at the end; raises what ended it."""
        with self._lock:
            if not self._waiting and not self._ended:
                self._reader_sleeps = True
                return None
            lot, self._waiting, self._taken, self._bytes = self._waiting, [], self._bytes, 0
            self._mark = 0
            self._account.hold(self._taken)
            wake, self._producer_sleeps = self._producer_sleeps, False
        if wake:
            self._call_soon(self._room.set)
        if not lot and self._error is not None:
            raise self._error
        return lot

    def cancel(self) -> bool:
        """Nobody reads any more: cancel the producer. False when it is `gone` already."""
        with self._lock:
            self._closed = True
            self._waiting = []
            self._error = None
            self._account.hold(0)
        if self.gone.is_set():
            return False
        self._call_soon(self._cancel)
        return True

    def _cancel(self) -> None:
        task, self._task = self._task, None
        if task is not None:  # else it has not begun, and will see that it is closed
            # Once: one that was stopped is closed as well, and a second time would break off the iterator's clean-up.
            task.cancel()

    async def _produce(self) -> None:
        self._task = asyncio.current_task()
        try:
            try:
                if not self._closed:
                    await self._iterate()
            finally:
                await self._close_items()
        except BaseException as raised:
            self._end(failure_of(raised))
        else:
            self._end(None)
        self.gone.set()
        self._tell()

    def _end(self, error: Exception | None) -> None:
        self._task = None  # a late cancel finds nothing to cancel
        with self._lock:
            self._ended, self._error = True, None if self._closed else error

    async def _iterate(self) -> None:
        turn = 0
        async for item in self._items:
            size = self._size_of(item)
            with self._lock:
                self._waiting.append(item)
                self._bytes += size
                tell, self._reader_sleeps = self._reader_sleeps, False
                full = self._producer_sleeps = self._bytes >= self._mark and self._is_full()
                if full:
                    self._room.clear()
            if tell:
                self._tell()
            turn += 1
            if full:
                await self._room.wait()
            elif turn % ITEMS_PER_TURN == 0:
                await asyncio.sleep(0)

    def _is_full(self) -> bool:
        """Whether the producer must wait. `_lock` is held."""
        self._mark = min(self._bytes + STEP_BYTES, self._max_bytes)
        has_share = self._closed or self._account.hold(self._bytes + self._taken)
        return not has_share or self._bytes >= self._max_bytes

    async def _close_items(self) -> None:
        aclose = getattr(self._items, "aclose", None)
        if aclose is not None:
            await aclose()

    def _call_soon(self, callback: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and its tasks with it
            self._shard.loop.call_soon_threadsafe(callback)
