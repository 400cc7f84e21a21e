"""What was under way and is over holds nothing: its memory comes back without Python having to look for cycles.

Python looks for them by the number of objects. A batch of megabytes is one.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator

import pytest

from fastflight.concurrency import Shard, across, read_ahead
from fastflight.errors import DataError

SOON = 60.0


class HeldMemory:
    """An item, large."""


class Source:
    """Gives one item, then fails, or never gives another. `released` is set when that item is gone."""

    def __init__(self, fails: bool) -> None:
        self.fails = fails
        self.released = threading.Event()

    async def items(self) -> AsyncIterator[HeldMemory]:
        item = HeldMemory()
        weakref.finalize(item, self.released.set)
        yield item
        if self.fails:
            raise DataError("no more")
        await asyncio.Event().wait()


@pytest.fixture
def shard() -> Iterator[Shard]:
    with Shard("holding") as shard:
        yield shard


@pytest.fixture(params=[False, True], ids=["left", "failed"])
def source(request: pytest.FixtureRequest) -> Iterator[Source]:
    gc.disable()
    try:
        yield Source(request.param)
    finally:
        gc.enable()


def test_a_thread_that_has_read(shard: Shard, source: Source) -> None:
    reader = read_ahead(shard, source.items, max_bytes=1, size_of=lambda _: 1)
    next(reader)
    if source.fails:
        with pytest.raises(DataError):
            next(reader)
    reader.close()
    assert source.released.wait(SOON)


Reading = AsyncGenerator[HeldMemory, None]


def crossed(shard: Shard, source: Source) -> Reading:
    return across(shard, source.items, max_bytes=1, size_of=lambda _: 1)


@pytest.mark.parametrize("reading", [crossed])
async def test_a_coroutine_that_has_read(
    shard: Shard, source: Source, reading: Callable[[Shard, Source], Reading]
) -> None:
    async with contextlib.aclosing(reading(shard, source)) as reader:
        await anext(reader)
        if source.fails:
            with pytest.raises(DataError):
                await anext(reader)
    assert source.released.wait(SOON)


@pytest.mark.parametrize("reading", [crossed])
def test_a_coroutine_that_was_cancelled(
    shard: Shard, source: Source, reading: Callable[[Shard, Source], Reading]
) -> None:
    async def read() -> None:
        async with contextlib.aclosing(reading(shard, source)) as reader:
            async for _ in reader:
                taken.set()

    async def main() -> None:
        task = asyncio.ensure_future(read())
        await taken.wait()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, DataError):
            await task

    taken = asyncio.Event()
    asyncio.run(main())
    assert source.released.wait(SOON)
