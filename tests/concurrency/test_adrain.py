"""From an async producer to a coroutine of another loop: what `drain` promises, without a thread that waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.concurrency import Shard, adrain
from fastflight.errors import DataError, FastFlightError, Stopped

# For waits that end as soon as something happens; reached only when it does not.
SOON = 10.0


@pytest.fixture(scope="module")
def shard() -> Iterator[Shard]:
    with Shard("test-shard") as shard:
        yield shard


def tasks_of(shard: Shard) -> int:
    async def count() -> int:
        return len(asyncio.all_tasks()) - 1

    return shard.submit(count()).result(SOON)


def size_of(item: object) -> int:
    return 1


async def numbers(count: int) -> AsyncIterator[int]:
    for number in range(count):
        yield number


class Idle:
    """Gives one item, then waits for ever; knows whether it was cleaned up."""

    def __init__(self) -> None:
        self.closed = threading.Event()

    async def items(self) -> AsyncIterator[int]:
        try:
            yield 0
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.closed.set()


@given(items=st.lists(st.integers()), max_bytes=st.integers(1, 5), suspend=st.sets(st.integers(0, 20)))
def test_every_item_arrives_once_and_in_order(
    shard: Shard, items: list[int], max_bytes: int, suspend: set[int]
) -> None:
    async def produce() -> AsyncIterator[int]:
        for i, item in enumerate(items):
            if i in suspend:
                await asyncio.sleep(0)
            yield item

    async def read() -> list[int]:
        return [item async for item in adrain(shard, produce(), max_bytes=max_bytes, size_of=size_of)]

    assert asyncio.run(read()) == items


def test_a_source_that_is_always_ahead_leaves_the_loop_to_others(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastflight.concurrency.turn.TURN_SECONDS", 0.0)
    ahead = threading.Event()

    async def produce() -> AsyncIterator[int]:
        for number in range(100):
            yield number
        ahead.set()

    async def run() -> int:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        drained = adrain(shard, produce(), max_bytes=1000, size_of=size_of)
        assert ahead.wait(SOON)
        working = asyncio.create_task(other())
        assert [item async for item in drained] == list(range(100))
        working.cancel()
        return turns

    assert asyncio.run(run()) >= 100


def test_the_loop_of_the_shard_can_read_too(shard: Shard) -> None:
    async def read() -> list[int]:
        return [item async for item in adrain(shard, numbers(100), max_bytes=3, size_of=size_of)]

    assert shard.submit(read()).result(SOON) == list(range(100))


@pytest.mark.parametrize(
    ("raised", "seen"),
    [
        (DataError("bad row"), DataError),
        (asyncio.CancelledError(), Stopped),
        (SystemExit(3), FastFlightError),
        (KeyboardInterrupt(), FastFlightError),
        (GeneratorExit(), FastFlightError),
        (ValueError("bug"), ValueError),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_a_failure_arrives_after_the_items_before_it(
    shard: Shard, raised: BaseException, seen: type[BaseException]
) -> None:
    async def produce() -> AsyncIterator[int]:
        yield 1
        yield 2
        raise raised

    async def read() -> None:
        drained = adrain(shard, produce(), max_bytes=10, size_of=size_of)
        assert [await anext(drained), await anext(drained)] == [1, 2]
        with pytest.raises(seen):
            await anext(drained)

    asyncio.run(read())
    assert tasks_of(shard) == 0


def test_closing_cancels_the_producer_and_waits_for_its_clean_up(shard: Shard) -> None:
    idle = Idle()

    async def read() -> None:
        drained = adrain(shard, idle.items(), max_bytes=4, size_of=size_of)
        assert await anext(drained) == 0
        await drained.aclose()
        assert idle.closed.is_set()
        await drained.aclose()

    asyncio.run(read())
    assert tasks_of(shard) == 0


def test_a_reader_that_is_cancelled_can_close(shard: Shard) -> None:
    idle = Idle()

    async def read(begun: asyncio.Event) -> None:
        drained = adrain(shard, idle.items(), max_bytes=4, size_of=size_of)
        try:
            async for _ in drained:
                begun.set()
        finally:
            await drained.aclose()

    async def main() -> None:
        begun = asyncio.Event()
        reader = asyncio.create_task(read(begun))
        await begun.wait()
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        assert idle.closed.is_set()

    asyncio.run(main())
    assert tasks_of(shard) == 0


def test_closing_the_shard_is_an_error_to_the_reader_not_an_end() -> None:
    shard = Shard("short-lived").start()
    idle = Idle()

    async def read() -> None:
        drained = adrain(shard, idle.items(), max_bytes=4, size_of=size_of)
        assert await anext(drained) == 0
        shard.stop()
        with pytest.raises(Stopped):
            await anext(drained)
        await drained.aclose()

    asyncio.run(read())
    shard.close()
    assert idle.closed.is_set()
