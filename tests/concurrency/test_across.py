"""From one event loop to another."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

from fastflight.concurrency import Shard
from fastflight.concurrency.across import across
from fastflight.errors import Stopped

SOON = 10.0


@pytest.fixture
def shard() -> Iterator[Shard]:
    with Shard("elsewhere") as shard:
        yield shard


def size(item: int) -> int:
    return 1


async def counted(to: int, threads: list[int] | None = None) -> AsyncIterator[int]:
    for number in range(to):
        if threads is not None:
            threads.append(threading.get_ident())
        await asyncio.sleep(0)
        yield number


@pytest.mark.parametrize("max_bytes", [1, 5, 1000])
@pytest.mark.parametrize("count", [0, 1, 100])
def test_items_come_in_order_from_the_other_loop(shard: Shard, max_bytes: int, count: int) -> None:
    threads: list[int] = []

    async def main() -> list[int]:
        return [n async for n in across(shard, lambda: counted(count, threads), max_bytes=max_bytes, size_of=size)]

    assert asyncio.run(main()) == list(range(count))
    assert set(threads) <= {shard.thread_id}


def test_on_its_own_loop_nothing_is_crossed(shard: Shard) -> None:
    async def main() -> list[int]:
        return [n async for n in across(shard, lambda: counted(3), max_bytes=1, size_of=size)]

    assert shard.submit(main()).result(SOON) == [0, 1, 2]


class Failing(Exception):
    """What the iterator raises."""


@pytest.mark.parametrize(
    ("raised", "seen"), [(Failing(), Failing), (asyncio.CancelledError(), Stopped), (SystemExit(), Exception)]
)
def test_a_failure_comes_after_the_items_before_it(
    shard: Shard, raised: BaseException, seen: type[BaseException]
) -> None:
    async def failing() -> AsyncIterator[int]:
        yield 1
        raise raised

    async def main() -> None:
        items = across(shard, failing, max_bytes=100, size_of=size)
        assert await anext(items) == 1
        with pytest.raises(seen):
            await anext(items)

    asyncio.run(main())


def test_no_more_is_made_than_there_is_room_for(shard: Shard) -> None:
    made: list[int] = []

    async def endless() -> AsyncIterator[int]:
        while True:
            made.append(len(made))
            yield made[-1]

    async def main() -> None:
        async with contextlib.aclosing(across(shard, endless, max_bytes=4, size_of=size)) as items:
            for expected in range(20):
                assert await anext(items) == expected
                # The lot in the reader's hands, the one that waits, and the item that is being made.
                assert len(made) <= expected + 10

    asyncio.run(main())


def test_closing_runs_the_clean_up_over_there_first(shard: Shard) -> None:
    ended: list[str] = []

    async def idle() -> AsyncIterator[int]:
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("idle")

    async def main() -> None:
        async with contextlib.aclosing(across(shard, idle, max_bytes=4, size_of=size)) as items:
            assert await anext(items) == 1
        assert ended == ["idle"]

    asyncio.run(main())
    while shard.tasks():  # the one that has told its outcome is about to end
        shard.submit(asyncio.sleep(0)).result(SOON)


def test_a_loop_that_is_closed_ends_what_it_gave(shard: Shard) -> None:
    async def idle() -> AsyncIterator[int]:
        yield 1
        await asyncio.Event().wait()

    async def main() -> None:
        items = across(shard, idle, max_bytes=4, size_of=size)
        assert await anext(items) == 1
        await asyncio.get_running_loop().run_in_executor(None, shard.close)
        with pytest.raises(Stopped):
            await anext(items)
        with pytest.raises(Stopped, match="closed"):
            await anext(across(shard, idle, max_bytes=4, size_of=size))

    asyncio.run(main())
