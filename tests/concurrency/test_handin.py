"""From a blocking producer to an async consumer."""

from __future__ import annotations

import asyncio
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.concurrency import HandIn
from fastflight.errors import DataError, Stopped

SOON = 10.0


async def collect(handin: HandIn[int], pause: bool) -> list[int]:
    items = []
    async for item in handin:
        if pause:
            await asyncio.sleep(0)
        items.append(item)
    return items


@given(items=st.lists(st.integers(), max_size=50), max_bytes=st.integers(1, 5), pause=st.booleans())
def test_every_item_arrives_once_and_in_order(items: list[int], max_bytes: int, pause: bool) -> None:
    async def run() -> None:
        handin: HandIn[int] = HandIn(asyncio.get_running_loop(), max_bytes)

        def produce() -> None:
            for item in items:
                handin.put(item, 1)
            handin.finish()

        thread = threading.Thread(target=produce)
        thread.start()
        assert await collect(handin, pause) == items
        assert handin.exhausted
        thread.join(SOON)

    asyncio.run(run())


def test_put_blocks_at_the_bound_until_the_consumer_takes() -> None:
    async def run() -> None:
        handin: HandIn[int] = HandIn(asyncio.get_running_loop(), 2)
        third = threading.Event()

        def produce() -> None:
            handin.put(1, 1)
            handin.put(2, 1)
            asking.wait(SOON)
            handin.put(3, 1)
            third.set()
            handin.finish()

        asking = threading.Event()
        asked = threading.Event()

        def wanted() -> bool:
            asked.set()
            return True

        handin._still_wanted = wanted
        thread = threading.Thread(target=produce)
        thread.start()
        asking.set()
        await asyncio.to_thread(asked.wait, SOON)  # it waits for room, and asks whether to go on
        assert not third.is_set()
        assert await collect(handin, False) == [1, 2, 3]
        thread.join(SOON)

    asyncio.run(run())


def test_an_error_arrives_after_the_items_before_it() -> None:
    async def run() -> None:
        handin: HandIn[int] = HandIn(asyncio.get_running_loop(), 10)
        handin.put(1, 1)
        handin.fail(DataError("bad batch"))
        assert await anext(handin) == 1
        with pytest.raises(DataError):
            await anext(handin)
        assert not handin.exhausted

    asyncio.run(run())


def test_a_blocked_producer_wakes_when_the_consumer_leaves() -> None:
    async def run() -> None:
        handin: HandIn[int] = HandIn(asyncio.get_running_loop(), 1)
        handin.put(1, 1)

        def produce() -> type[BaseException] | None:
            try:
                handin.put(2, 1)
            except Stopped as error:
                return type(error)
            return None

        blocked = asyncio.get_running_loop().run_in_executor(None, produce)
        await handin.aclose()
        assert await blocked is Stopped
        with pytest.raises(Stopped):
            handin.put(3, 1)

    asyncio.run(run())


def test_a_blocked_producer_asks_whether_to_go_on() -> None:
    async def run() -> None:
        handin: HandIn[int] = HandIn(asyncio.get_running_loop(), 1, still_wanted=lambda: False)
        handin.put(1, 1)
        with pytest.raises(Stopped):
            await asyncio.to_thread(handin.put, 2, 1)

    asyncio.run(run())


def test_a_failure_at_once_overtakes_what_waits() -> None:
    async def run() -> list[int]:
        handin: HandIn[int] = HandIn(asyncio.get_running_loop(), 10)
        taken = []
        for item in range(3):
            handin.put(item, 1)
        taken.append(await anext(handin))
        handin.fail(DataError("broke off"), at_once=True)
        with pytest.raises(DataError):
            await anext(handin)
        return taken

    assert asyncio.run(run()) == [0]


def test_a_failure_comes_after_what_waits() -> None:
    async def run() -> list[int]:
        handin: HandIn[int] = HandIn(asyncio.get_running_loop(), 10)
        for item in range(3):
            handin.put(item, 1)
        handin.fail(DataError("broke off"))
        taken = [await anext(handin) for _ in range(3)]
        with pytest.raises(DataError):
            await anext(handin)
        return taken

    assert asyncio.run(run()) == [0, 1, 2]


def test_what_was_dropped_does_not_look_like_the_end_of_what_was_finished() -> None:
    """A producer that has handed everything in leaves before the consumer has taken it."""

    async def run() -> list[int]:
        handin: HandIn[int] = HandIn(asyncio.get_running_loop(), 10)
        for item in range(3):
            handin.put(item, 1)
        taken = [await anext(handin)]
        handin.finish()
        handin.fail(DataError("broke off"), at_once=True)
        with pytest.raises(DataError):
            await anext(handin)
        assert not handin.exhausted
        return taken

    assert asyncio.run(run()) == [0]


def test_nothing_comes_after_what_was_dropped() -> None:
    async def run() -> None:
        handin: HandIn[int] = HandIn(asyncio.get_running_loop(), 1)
        handin.put(0, 1)
        handin.fail(DataError("broke off"), at_once=True)
        with pytest.raises(Stopped):
            handin.put(1, 1)
        handin.fail(Stopped("later"), at_once=True)
        with pytest.raises(DataError):
            await anext(handin)

    asyncio.run(run())


@pytest.mark.parametrize("at_once", [1, 100], ids=["in lots of one", "in one lot"])
def test_a_source_that_is_always_ahead_leaves_the_loop_to_others(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastflight.concurrency.turn.TURN_SECONDS", 0.0)

    async def run() -> int:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        handed: HandIn[int] = HandIn(asyncio.get_running_loop(), 1000)
        working = asyncio.create_task(other())
        for first in range(0, 100, at_once):
            numbers = range(first, first + at_once)
            for number in numbers:
                handed.put(number, 1)
            for number in numbers:
                assert await anext(handed) == number
        working.cancel()
        return turns

    assert asyncio.run(run()) >= 100
