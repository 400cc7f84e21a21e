"""Runs several iterations at the same time: `Gather` in threads of its own, `AsyncGather` in tasks of one loop.

At most `limit` of the `jobs` run at a time, and they begin in order. Their items wait for the consumer in channels,
which hold `max_bytes` together. There is one channel for all jobs, which yields items as they come. With `ordered`
there is one channel for each job, and the channels are read one after the other. The first error of a job ends all jobs
and is raised at once.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Generic, TypeVar

from fastflight.concurrency.channel import Channel

T = TypeVar("T")
J = TypeVar("J")

# How long a consumer with an `idle` function waits for an item before it gets one from that function.
IDLE_SECONDS = 0.1


class _Lanes(Generic[J, T]):
    """The jobs that have not begun, and the channels of all jobs."""

    def __init__(self, jobs: Sequence[J], limit: int, max_bytes: int, ordered: bool) -> None:
        self._jobs = enumerate(jobs)
        self._lock = threading.Lock()
        self._open = len(jobs)
        self._ordered = ordered
        self.workers = min(limit, len(jobs))
        lanes, each = (len(jobs), max_bytes // max(1, self.workers)) if ordered else (1, max_bytes)
        self._channels = [Channel[T](max(1, each)) for _ in range(lanes)]
        # The channels that the consumer has not read to their end.
        self.unread = deque(self._channels)
        if not jobs:
            self.unread.clear()

    def next_job(self) -> tuple[Channel[T], J] | None:
        """Return a job that has not begun and the channel for its items; None if all jobs have begun."""
        with self._lock:
            number, job = next(self._jobs, (-1, None))
        return None if job is None else (self._channels[number if self._ordered else 0], job)

    def job_ended(self, channel: Channel[T]) -> None:
        """Note that a job has yielded all its items."""
        with self._lock:
            self._open -= 1
            last = not self._open
        if self._ordered or last:
            channel.finish()

    def cancel(self, error: BaseException | None = None) -> None:
        """End all jobs, because of `error` if there is one."""
        for channel in self._channels:
            channel.cancel(error)


class Gather(Iterator[T], Generic[T]):
    """Iterates over the items of all `jobs`. After every `IDLE_SECONDS` without an item, `idle` (if any) supplies one.

    `close`, from any thread, ends the iteration. A job notices that at its next item, and its iterator is closed.
    """

    def __init__(
        self,
        jobs: Sequence[Callable[[], Iterable[T]]],
        *,
        limit: int,
        max_bytes: int,
        size_of: Callable[[T], int],
        ordered: bool = False,
        idle: Callable[[], T] | None = None,
        name: str = "gather",
    ) -> None:
        self._idle = idle
        self._wait = threading.Event.wait if idle is None else partial(_wait_for, seconds=IDLE_SECONDS)
        self._taken: deque[T] = deque()
        # The threads refer to this and not to the `Gather`. So an unused `Gather` is deleted, which ends the threads.
        self._lanes = _Lanes[Callable[[], Iterable[T]], T](jobs, limit, max_bytes, ordered)
        self._threads = [
            threading.Thread(
                target=contextvars.copy_context().run,
                args=(_work, self._lanes, size_of),
                name=f"{name}-{number}",
                daemon=True,
            )
            for number in range(self._lanes.workers)
        ]
        for thread in self._threads:
            thread.start()

    def __next__(self) -> T:
        unread = self._lanes.unread
        while unread:
            unread[0].check()
            if self._taken:
                return self._taken.popleft()
            items = unread[0].take(self._wait)
            if items is None:
                assert self._idle is not None
                return self._idle()
            if items:
                self._taken = items
            else:
                unread.popleft()
        raise StopIteration

    def stop(self) -> None:
        """End the iteration without waiting for the jobs, from any thread. A reading thread gets `Cancelled`."""
        self._lanes.cancel()

    def close(self, timeout: float | None = None) -> None:
        """End the iteration, and wait for the jobs for at most `timeout` seconds."""
        self.stop()
        deadline = None if timeout is None else time.monotonic() + timeout
        for thread in self._threads:
            thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))

    def __del__(self) -> None:
        if hasattr(self, "_lanes"):
            self.stop()


def _wait_for(event: threading.Event, seconds: float) -> bool:
    return event.wait(seconds)


def _work(lanes: _Lanes[Callable[[], Iterable[T]], T], size_of: Callable[[T], int]) -> None:
    """Run jobs one after another until all have begun."""
    try:
        while (job := lanes.next_job()) is not None:
            channel, begin = job
            items = begin()
            try:
                for item in items:
                    channel.put(item, size_of(item))
            finally:
                close = getattr(items, "close", None)
                if close is not None:
                    close()
            lanes.job_ended(channel)
    except BaseException as error:
        lanes.cancel(error)


class AsyncGather(AsyncIterator[T], Generic[T]):
    """`Gather` for asynchronous iterators. Make, iterate and close it on one loop.

    `aclose` cancels the jobs and returns when their clean-up has run.
    """

    def __init__(
        self,
        jobs: Sequence[Callable[[], AsyncIterable[T]]],
        *,
        limit: int,
        max_bytes: int,
        size_of: Callable[[T], int],
        ordered: bool = False,
    ) -> None:
        self._size_of = size_of
        self._cancelled = False
        self._lanes = _Lanes[Callable[[], AsyncIterable[T]], T](jobs, limit, max_bytes, ordered)
        self._tasks = [asyncio.create_task(self._work()) for _ in range(self._lanes.workers)]

    async def __anext__(self) -> T:
        unread = self._lanes.unread
        while unread:
            try:
                return await anext(unread[0])
            except StopAsyncIteration:
                unread.popleft()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End the iteration and wait for the jobs. Does nothing the second time."""
        self._cancel()
        try:
            if self._tasks:
                await asyncio.wait(self._tasks)
        finally:  # the wait may be cancelled
            self._lanes.cancel()

    async def _work(self) -> None:
        try:
            while (job := self._lanes.next_job()) is not None:
                channel, begin = job
                await self._iterate(channel, begin())
                self._lanes.job_ended(channel)
        except BaseException as error:
            self._lanes.cancel(error)
            self._cancel()

    def _cancel(self) -> None:
        """Cancel the jobs once: a second time would interrupt their clean-up."""
        if not self._cancelled:
            self._cancelled = True
            for task in self._tasks:
                if task is not asyncio.current_task():
                    task.cancel()

    async def _iterate(self, channel: Channel[T], items: AsyncIterable[T]) -> None:
        try:
            async for item in items:
                channel.add(item, self._size_of(item))
                await asyncio.sleep(0)  # else a job that never suspends would take all the room
                await channel.room()
        finally:
            aclose = getattr(items, "aclose", None)
            if aclose is not None:
                await aclose()
