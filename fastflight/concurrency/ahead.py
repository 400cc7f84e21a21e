"""Iterates a source ahead of a reader elsewhere: an asynchronous one on a shard, a blocking one in a thread.

`read_ahead` is for a reader that is a blocking thread, `across` for a coroutine of another loop. `iterate_in_thread` is
for a coroutine that reads a blocking iterator. All read through a `Channel`. The reader ends when the source ends. If
the source fails, the reader gets the items before the failure, and then the error. If the iteration is stopped from
outside, the reader gets an error, never a normal end. Closing the reader cancels the iteration and returns when the
source's clean-up has run.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Sequence
from functools import partial
from typing import Generic, TypeAlias, TypeVar

from fastflight.concurrency.channel import Channel, Wake, failure_of, loop_event
from fastflight.concurrency.offload import off_loop
from fastflight.concurrency.shard import LOOK_SECONDS, Shard, always
from fastflight.errors import Stopped

T = TypeVar("T")

# How long a closed reader waits for the source's clean-up: a board's recovery takes about two seconds.
CLOSE_SECONDS = 5.0
# How long to wait for the thread of a cancelled channel. It notices the cancellation at the source's next item: a sync
# source yields an empty list now and then.
JOIN_SECONDS = 5.0
# After this many items the loop's other tasks get a turn, in case the source never suspends by itself.
ITEMS_PER_TURN = 16

# Takes a function to call when the reader must end, or None to remove it.
WhenStopped: TypeAlias = Callable[[Callable[[], object] | None], object]


def _never(callback: Callable[[], object] | None) -> None:
    """The default of `when_stopped`: nothing stops the reader."""


def read_ahead(
    shard: Shard,
    begin: Callable[[], AsyncIterator[T]],
    *,
    max_bytes: int,
    size_of: Callable[[T], int],
    still_wanted: Callable[[], bool] = always,
    when_stopped: WhenStopped = _never,
) -> Generator[Sequence[T], None, None]:
    """Start iterating the iterator that `begin` returns on `shard`. Yield all items that wait, at least one.

    The reader is a thread. While it waits, it calls `still_wanted` every 0.5 s, and raises `Stopped` once that returns
    False, or the error that it raises. `when_stopped` gets a function that cancels the iteration, from any thread; the
    reader then gets `Cancelled`. Close or drop the generator to cancel the iteration.
    """
    generator = _read(_Producer(shard, begin, max_bytes, size_of), shard, still_wanted, when_stopped)
    next(generator)  # to its first `yield`, so that closing it runs its `finally` even if no item is read
    return generator


async def across(
    shard: Shard, begin: Callable[[], AsyncIterator[T]], *, max_bytes: int, size_of: Callable[[T], int]
) -> AsyncGenerator[T, None]:
    """Iterate the iterator that `begin` returns on `shard`, for a coroutine of any loop.

    On the shard's own loop the items are passed on directly.
    """
    if shard.loop is asyncio.get_running_loop():
        items = begin()
        try:
            async for item in items:
                yield item
        finally:
            await _close(items)
        return
    producer = _Producer(shard, begin, max_bytes, size_of)
    try:
        async for item in producer.channel:
            yield item
    finally:
        if not producer.channel.exhausted and shard.running:  # else the source's clean-up has run
            ended, wake = loop_event()
            producer.cancel(wake)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), 0 if shard.blocked else CLOSE_SECONDS)


def _read(
    producer: _Producer[T], shard: Shard, still_wanted: Callable[[], bool], when_stopped: WhenStopped
) -> Generator[Sequence[T], None, None]:
    look = partial(shard.look, still_wanted)
    try:
        when_stopped(producer.cancel)
        yield ()
        yield from producer.channel.takes(look, LOOK_SECONDS)
    finally:
        when_stopped(None)
        if not producer.channel.exhausted and shard.running:  # else the source's clean-up has run
            ended = threading.Event()
            producer.cancel(ended.set)
            ended.wait(0 if shard.blocked else CLOSE_SECONDS)


class _Producer(Generic[T]):
    """The side on the shard. Private attributes are used only on the shard's loop."""

    def __init__(
        self, shard: Shard, begin: Callable[[], AsyncIterator[T]], max_bytes: int, size_of: Callable[[T], int]
    ) -> None:
        self.channel = Channel[T](max_bytes)
        self._shard = shard
        self._begin = begin
        self._size_of = size_of
        # None if there is nothing to cancel.
        self._task: asyncio.Task[None] | None = None
        self._cancelled = False
        # Functions to call when the source's clean-up has run; None once it has.
        self._waiters: list[Wake] | None = []
        if shard.owner:
            shard.when_blocked.add(self.channel.fail)
            if shard.blocked:
                self.channel.fail(shard.blocked)
        shard.spawn(self._run, self._end)

    def cancel(self, ended: Wake | None = None) -> None:
        """Cancel the iteration and drop what waits. Call `ended` on the loop after the clean-up. For any thread."""
        self.channel.cancel()
        self._shard.call(partial(self._cancel, ended))

    def _cancel(self, ended: Wake | None) -> None:
        # The task is cancelled once: a second time would interrupt the source's clean-up.
        self._cancelled = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        if ended is not None and self._waiters is not None:
            self._waiters.append(ended)
        elif ended is not None:
            _wake(ended)

    def _end(self) -> None:
        # For a task that was cancelled before its first step: `_run` has not ended the channel.
        self.channel.fail(Stopped("the event loop is closed"))
        self._shard.when_blocked.discard(self.channel.fail)
        waiters, self._waiters = self._waiters or [], None
        for ended in waiters:
            _wake(ended)

    async def _run(self) -> None:
        try:
            if not self._cancelled:
                items = self._begin()
                self._task = asyncio.current_task()
                try:
                    await self._iterate(items)
                finally:
                    self._task = None
                    await _close(items)
        except BaseException as raised:
            self.channel.fail(failure_of(raised))
        else:
            self.channel.finish()

    async def _iterate(self, items: AsyncIterator[T]) -> None:
        count = 0
        async for item in items:
            count += 1
            if not self.channel.add(item, self._size_of(item)):
                await self.channel.room()
            elif count % ITEMS_PER_TURN == 0:
                await asyncio.sleep(0)


async def _close(items: object) -> None:
    aclose = getattr(items, "aclose", None)
    if aclose is not None:
        await aclose()


def _wake(ended: Wake) -> None:
    with contextlib.suppress(RuntimeError):  # the waiter's loop is closed
        ended()


async def iterate_in_thread(
    items: Callable[[], Generator[T, None, None]],
    *,
    max_bytes: int,
    size_of: Callable[[T], int],
    cancel: Callable[[], None] | None = None,
) -> AsyncGenerator[T, None]:
    """Iterate `items()` in a thread of its own and yield what it gives. Closing this generator ends the iteration.

    `cancel` is called when this generator ends: it wakes an iterator that waits and yields nothing meanwhile.
    """
    channel = Channel[T](max_bytes)
    thread = threading.Thread(
        target=contextvars.copy_context().run,
        args=(_iterate, items, channel, size_of),
        name="source-reader",
        daemon=True,
    )
    thread.start()
    try:
        async for item in channel:
            yield item
    finally:
        await channel.aclose()
        if cancel is not None:
            cancel()
        await off_loop(thread.join, JOIN_SECONDS)


def _iterate(items: Callable[[], Generator[T, None, None]], channel: Channel[T], size_of: Callable[[T], int]) -> None:
    try:
        with contextlib.closing(items()) as iterator:
            for item in iterator:
                channel.put(item, size_of(item))
    except BaseException as error:
        channel.fail(failure_of(error))
    else:
        channel.finish()
