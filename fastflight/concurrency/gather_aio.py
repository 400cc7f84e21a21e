"""Several async iterations side by side, as one: `Gather` on an event loop, whose jobs are tasks.

`aclose` cancels the jobs and returns when their clean-up has run.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence
from typing import Generic, TypeVar

from fastflight.concurrency.gathered import Gathered
from fastflight.concurrency.governor import UNGOVERNED, Governor

T = TypeVar("T")


class AsyncGather(AsyncIterator[T], Generic[T]):
    """The items of all `jobs`; to be made, iterated and closed on one loop."""

    def __init__(
        self,
        jobs: Sequence[Callable[[], AsyncIterable[T]]],
        *,
        limit: int,
        max_bytes: int,
        size_of: Callable[[T], int],
        ordered: bool = False,
        governor: Governor = UNGOVERNED,
    ) -> None:
        self._gathered = Gathered[T](len(jobs), max_bytes, ordered, governor)
        self._jobs = enumerate(jobs)
        self._size_of = size_of
        self._error: BaseException | None = None
        self._cancelled = False
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._tasks = [asyncio.create_task(self._work()) for _ in range(min(limit, len(jobs)))]

    async def __anext__(self) -> T:
        while True:
            if self._error is not None:
                raise self._error
            if self._gathered.done:
                raise StopAsyncIteration
            taken = self._gathered.take()
            self._room.set()  # there is room, or it is another one's turn
            if taken:
                return taken[0]
            self._arrived.clear()
            await self._arrived.wait()

    async def aclose(self) -> None:
        """End it. Does nothing the second time."""
        self._cancel()
        try:
            if self._tasks:
                await asyncio.wait(self._tasks)
        finally:  # the wait may be cancelled
            self._gathered.close()

    async def _work(self) -> None:
        try:
            for number, begin in self._jobs:
                await self._iterate(number, begin())
                self._gathered.end(number)
                self._arrived.set()
        except BaseException as error:
            self._error = self._error or error
            self._arrived.set()
            self._cancel()

    def _cancel(self) -> None:
        """Once: a second time would break off the jobs' clean-up."""
        if not self._cancelled:
            self._cancelled = True
            for task in self._tasks:
                if task is not asyncio.current_task():
                    task.cancel()

    async def _iterate(self, number: int, items: AsyncIterable[T]) -> None:
        try:
            async for item in items:
                while not self._gathered.has_room(number):
                    self._room.clear()
                    await self._room.wait()
                self._gathered.add(number, item, self._size_of(item))
                self._arrived.set()
                await asyncio.sleep(0)  # one that never suspends would take all the room there is
        finally:
            aclose = getattr(items, "aclose", None)
            if aclose is not None:
                await aclose()
