"""Iterating an asynchronous source on a shard, ahead of a reader elsewhere.

`lots_ahead` is for a thread that blocks, `across` for a coroutine of another loop. Both read through a `Channel`: the
source's end is the reader's end; its failure, of any kind, is raised after the items before it; what is stopped from
outside is an error. Closing the reader cancels the iteration, and returns when the source's own clean-up has run.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Sequence
from functools import partial
from typing import Generic, TypeAlias, TypeVar

from fastflight.concurrency.channel import Channel, Wake, failure_of, loop_event
from fastflight.concurrency.shard import LOOK_SECONDS, Shard, always
from fastflight.errors import Stopped

T = TypeVar("T")

# How long a closed reader waits for the source's clean-up: a board's recovery takes about two.
CLOSE_SECONDS = 5.0
# Items after which the loop's other tasks have a turn, should the source never suspend by itself.
ITEMS_PER_TURN = 16

# Takes what is to be called when the reader is to end; None once there is nothing to call any more.
WhenStopped: TypeAlias = Callable[[Callable[[], object] | None], object]


def _never(tell: Callable[[], object] | None) -> None:
    """For readers that nobody stops."""


def lots_ahead(
    shard: Shard,
    begin: Callable[[], AsyncIterator[T]],
    *,
    max_bytes: int,
    size_of: Callable[[T], int],
    still_wanted: Callable[[], bool] = always,
    when_stopped: WhenStopped = _never,
) -> Generator[Sequence[T], None, None]:
    """Iterate what `begin` gives on `shard`, from now on: lots of at least one item, for the calling thread.

    A reader that waits asks `still_wanted` every 0.5 s, and gets `Stopped` once it returns False, or what it raises.
    `when_stopped` is given what cancels the iteration, from any thread and whatever the reader does: the reader gets
    `Cancelled`. Close the generator, or drop it, to cancel the iteration.
    """
    generator = _lots(_Producer(shard, begin, max_bytes, size_of), shard, still_wanted, when_stopped)
    next(generator)  # from here on, closing it runs its `finally`: the source is closed even if it is never read
    return generator


async def across(
    shard: Shard, begin: Callable[[], AsyncIterator[T]], *, max_bytes: int, size_of: Callable[[T], int]
) -> AsyncGenerator[T, None]:
    """Iterate what `begin` gives on `shard`, for a coroutine of any loop. On the shard's own it costs nothing."""
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
                await asyncio.wait_for(ended.wait(), CLOSE_SECONDS)


def _lots(
    producer: _Producer[T], shard: Shard, still_wanted: Callable[[], bool], when_stopped: WhenStopped
) -> Generator[Sequence[T], None, None]:
    look = partial(shard.look, still_wanted)
    try:
        when_stopped(producer.cancel)
        yield ()
        yield from producer.channel.lots(look, LOOK_SECONDS)
    finally:
        when_stopped(None)
        if not producer.channel.exhausted and shard.running:  # else the source's clean-up has run
            ended = threading.Event()
            producer.cancel(ended.set)
            ended.wait(CLOSE_SECONDS)


class _Producer(Generic[T]):
    """The side on the shard. What is private is touched on the loop only."""

    def __init__(
        self, shard: Shard, begin: Callable[[], AsyncIterator[T]], max_bytes: int, size_of: Callable[[T], int]
    ) -> None:
        self.channel = Channel[T](max_bytes)
        self._shard = shard
        self._begin = begin
        self._size_of = size_of
        # None when there is nothing to cancel.
        self._task: asyncio.Task[None] | None = None
        self._cancelled = False
        # What is called when the source's clean-up has run; None once it has.
        self._told: list[Wake] | None = []
        shard.spawn(self._run, self._end)

    def cancel(self, ended: Wake | None = None) -> None:
        """End it: what waits is dropped. Then `ended` is called, on the loop. From any thread."""
        self.channel.cancel()
        self._shard.call(partial(self._cancel, ended))

    def _cancel(self, ended: Wake | None) -> None:
        # Once: a second time would break off the source's clean-up.
        self._cancelled = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        if ended is not None and self._told is not None:
            self._told.append(ended)
        elif ended is not None:
            _tell(ended)

    def _end(self) -> None:
        # A task that is cancelled before its first step runs nothing that would say so.
        self.channel.fail(Stopped("the event loop is closed"))
        told, self._told = self._told or [], None
        for ended in told:
            _tell(ended)

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


def _tell(ended: Wake) -> None:
    with contextlib.suppress(RuntimeError):  # the loop of who waits for it is closed
        ended()
