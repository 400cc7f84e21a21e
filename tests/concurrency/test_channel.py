"""The one hand-over between threads and loops: nothing lost, nothing reordered, each of its three ends told apart."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.concurrency import Cancelled, Channel
from fastflight.errors import DataError, Stopped
from tests.support.waiting import until

# For waits that end as soon as something happens; reached only when it does not.
SOON = 60.0

Read = Callable[[Channel[int]], list[int]]
Fill = Callable[[Channel[int], Iterable[int]], None]


def read_in_thread(channel: Channel[int]) -> list[int]:
    return list(channel)


def read_on_loop(channel: Channel[int]) -> list[int]:
    async def read() -> list[int]:
        return [item async for item in channel]

    return asyncio.run(read())


def read_lots(channel: Channel[int]) -> list[int]:
    return [item for items in channel.takes(lambda: None, SOON) for item in items]


def fill_in_thread(channel: Channel[int], items: Iterable[int]) -> None:
    for item in items:
        channel.put(item, 1)
    channel.finish()


def fill_on_loop(channel: Channel[int], items: Iterable[int]) -> None:
    async def fill() -> None:
        for item in items:
            await channel.aput(item, 1)
        channel.finish()

    asyncio.run(fill())


reads = pytest.mark.parametrize("read", [read_in_thread, read_on_loop, read_lots])
fills = pytest.mark.parametrize("fill", [fill_in_thread, fill_on_loop])


@reads
@fills
@given(items=st.lists(st.integers(), max_size=50), max_bytes=st.integers(1, 5))
def test_every_item_arrives_once_and_in_order(read: Read, fill: Fill, items: list[int], max_bytes: int) -> None:
    channel = Channel[int](max_bytes)
    filling = threading.Thread(target=fill, args=(channel, items))
    filling.start()
    assert read(channel) == items
    assert channel.exhausted
    filling.join(SOON)


def test_no_more_waits_than_there_is_room_for() -> None:
    channel = Channel[int](2)
    assert channel.add(1, 1)
    assert not channel.add(2, 1)
    woken: list[str] = []
    assert not channel.has_room(lambda: woken.append("room"))
    assert channel.take() is not None
    assert woken == ["room"]
    assert channel.has_room(lambda: woken.append("again"))
    assert woken == ["room"]


def test_an_item_larger_than_the_room_passes_alone() -> None:
    channel = Channel[int](2)
    assert not channel.add(1, 1_000)
    assert channel.take() is not None
    assert channel.has_room(threading.Event().set)


def test_while_a_sleeping_consumer_is_woken_the_next_item_can_be_made() -> None:
    channel = Channel[str](1)
    assert channel.poll(lambda: None) is None

    assert channel.add("taken at once", 5)
    assert not channel.add("waits", 5)


@reads
def test_an_error_comes_after_the_items_before_it(read: Read) -> None:
    channel = Channel[int](10)
    channel.put(1, 1)
    channel.fail(DataError("a bad batch"))
    assert next(channel) == 1
    for _ in range(2):
        with pytest.raises(DataError, match="a bad batch"):
            read(channel)
    assert not channel.exhausted


@reads
@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize(("error", "seen"), [(DataError("broke off"), DataError), (None, Cancelled)])
def test_a_cancelled_channel_never_looks_like_an_end(
    read: Read, finished: bool, error: Exception | None, seen: type[Exception]
) -> None:
    """Also when everything was handed over already, and when the consumer has a part of it in its hands."""
    channel = Channel[int](10)
    for item in range(3):
        channel.put(item, 1)
    assert next(channel) == 0
    if finished:
        channel.finish()
    channel.cancel(error)
    with pytest.raises(seen):
        read(channel)
    assert not channel.exhausted
    with pytest.raises(Cancelled):
        channel.add(3, 1)
    channel.finish()
    with pytest.raises(seen):
        read(channel)


@reads
def test_a_consumer_that_waits_is_woken_by_a_cancellation(read: Read) -> None:
    channel = Channel[int](10)
    raised: list[BaseException] = []

    def consume() -> None:
        try:
            read(channel)
        except Stopped as error:
            raised.append(error)

    reading = threading.Thread(target=consume)
    reading.start()
    until(lambda: channel.starving)
    channel.cancel(Stopped("the server shuts down"))
    reading.join(SOON)
    assert str(raised[0]).startswith("the server shuts down")


@fills
def test_a_producer_that_waits_for_room_is_woken_when_the_consumer_leaves(fill: Fill) -> None:
    channel = Channel[int](1)
    raised: list[BaseException] = []

    def produce() -> None:
        try:
            fill(channel, range(100))
        except Cancelled as error:
            raised.append(error)

    filling = threading.Thread(target=produce)
    filling.start()
    assert next(channel) == 0
    channel.close()
    filling.join(SOON)
    assert len(raised) == 1


def test_the_first_error_counts() -> None:
    channel = Channel[int](3)
    channel.put(0, 1)
    assert next(channel) == 0
    channel.check()
    channel.fail(DataError("the last of them was bad"))
    channel.check()  # what waits comes first
    channel.cancel(Stopped("the client has left"))
    with pytest.raises(DataError, match="the last of them"):
        channel.check()


def test_a_consumer_that_has_left_holds_no_error() -> None:
    channel = Channel[int](3)
    channel.fail(DataError("holds frames, and they hold batches"))
    channel.close()
    with pytest.raises(Cancelled):
        next(channel)


def test_a_thread_that_waits_may_give_up() -> None:
    channel = Channel[int](1)
    assert channel.take(lambda _: False) is None

    def gone(_: threading.Event) -> bool:
        raise Stopped("the client has left")

    channel.put(1, 1)
    with pytest.raises(Stopped, match="has left"):
        channel.put(2, 1, gone)
    assert list(channel.take() or ()) == [1]


def test_a_thread_that_waits_for_lots_looks_up_now_and_then() -> None:
    def gone() -> None:
        raise Stopped("the client has left")

    with pytest.raises(Stopped, match="has left"):
        next(Channel[int](1).takes(gone, 0.001))


class ThenAtOnce:
    """A lock that is let go, and then what somebody else does with the channel at that moment."""

    def __init__(self, lock: threading.Lock, other: Callable[[], object]) -> None:
        self._lock = lock
        self._others = [other]

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *raised: object) -> None:
        self._lock.release()
        if self._others:
            self._others.pop()()


def test_an_item_that_comes_with_the_end_while_the_reader_lies_down_is_not_lost() -> None:
    channel = Channel[int](1)

    def end() -> None:
        channel.add(1, 1)
        channel.finish()

    channel._lock = cast(threading.Lock, ThenAtOnce(channel._lock, end))
    assert read_lots(channel) == [1]


@pytest.mark.parametrize("at_once", [1, 100], ids=["one by one", "all together"])
def test_a_source_that_is_always_ahead_leaves_the_loop_to_others(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastflight.concurrency.channel.TURN_SECONDS", 0.0)

    async def run() -> int:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        channel = Channel[int](1000)
        working = asyncio.create_task(other())
        for first in range(0, 100, at_once):
            numbers = range(first, first + at_once)
            for number in numbers:
                channel.put(number, 1)
            for number in numbers:
                assert await anext(channel) == number
        working.cancel()
        return turns

    assert asyncio.run(run()) >= 100


def test_a_loop_that_is_closed_wakes_nobody_and_breaks_nothing() -> None:
    channel = Channel[int](10)

    async def wait() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await channel.atake()

    asyncio.run(wait())
    channel.put(1, 1)
    assert next(channel) == 1
