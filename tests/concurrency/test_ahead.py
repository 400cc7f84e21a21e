"""From an asynchronous source on a shard to a reader elsewhere: a thread, or a coroutine of another loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.concurrency import Cancelled, Shard, across, read_ahead
from fastflight.errors import DataError, FastFlightError, Stopped
from tests.support.waiting import until

# For waits that end as soon as something happens; reached only when it does not.
SOON = 60.0
Begin = Callable[[], AsyncIterator[int]]
# What was read, and what ended it.
Read = Callable[..., tuple[list[int], BaseException | None]]


@pytest.fixture(scope="module")
def shard() -> Iterator[Shard]:
    with Shard("test-shard") as shard:
        yield shard


def tasks_of(shard: Shard) -> int:
    async def count() -> int:
        return len(asyncio.all_tasks()) - 1

    return shard.submit(count()).result(SOON)


def settled(shard: Shard) -> bool:
    """Whether no task is left; one that has told its outcome is about to end."""
    return until(lambda: not tasks_of(shard))


def size_of(item: object) -> int:
    return 1


async def numbers(count: int) -> AsyncIterator[int]:
    for number in range(count):
        yield number


def read_in_thread(shard: Shard, begin: Begin, max_bytes: int = 10) -> tuple[list[int], BaseException | None]:
    found: list[int] = []
    try:
        for items in read_ahead(shard, begin, max_bytes=max_bytes, size_of=size_of):
            found += items
    except Exception as error:
        return found, error
    return found, None


def read_on_loop(shard: Shard, begin: Begin, max_bytes: int = 10) -> tuple[list[int], BaseException | None]:
    found: list[int] = []

    async def read() -> None:
        async with contextlib.aclosing(across(shard, begin, max_bytes=max_bytes, size_of=size_of)) as items:
            async for item in items:
                found.append(item)

    try:
        asyncio.run(read())
    except Exception as error:
        return found, error
    return found, None


reads = pytest.mark.parametrize("read", [read_in_thread, read_on_loop])


class IdleSource:
    """Gives one item, then waits for ever; knows whether it was cleaned up."""

    def __init__(self) -> None:
        self.closed = threading.Event()

    async def items(self) -> AsyncIterator[int]:
        try:
            yield 0
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # clean-up that awaits, as a device's does
            self.closed.set()


@reads
@given(items=st.lists(st.integers()), max_bytes=st.integers(1, 5), suspend=st.sets(st.integers(0, 20)))
def test_every_item_arrives_once_and_in_order(
    shard: Shard, read: Read, items: list[int], max_bytes: int, suspend: set[int]
) -> None:
    async def produce() -> AsyncIterator[int]:
        for i, item in enumerate(items):
            if i in suspend:
                await asyncio.sleep(0)
            yield item

    assert read(shard, produce, max_bytes) == (items, None)


def test_the_source_runs_ahead_until_the_bound_and_no_further(shard: Shard) -> None:
    made: list[int] = []
    full = threading.Event()

    async def produce() -> AsyncIterator[int]:
        for number in range(100):
            made.append(number)
            if number == 3:
                asyncio.get_running_loop().call_soon(full.set)
            yield number

    reader = read_ahead(shard, produce, max_bytes=4, size_of=size_of)
    assert full.wait(SOON)
    tasks_of(shard)  # the loop has had a turn since: a source without a bound would be further
    assert made == [0, 1, 2, 3]
    assert list(chain.from_iterable(reader)) == list(range(100))


async def test_a_coroutine_is_read_ahead_for_no_further_than_the_bound(shard: Shard) -> None:
    made: list[int] = []

    async def endless() -> AsyncIterator[int]:
        while True:
            made.append(len(made))
            yield made[-1]

    async with contextlib.aclosing(across(shard, endless, max_bytes=4, size_of=size_of)) as items:
        for expected in range(20):
            assert await anext(items) == expected
            # The items in the reader's hands, the one that waits, and the item that is being made.
            assert len(made) <= expected + 10


@reads
@pytest.mark.parametrize(
    ("raised", "seen"),
    [
        (DataError("bad row"), DataError),
        (asyncio.CancelledError(), Stopped),
        (SystemExit(3), FastFlightError),
        (KeyboardInterrupt(), FastFlightError),
        (GeneratorExit(), FastFlightError),
        (StopIteration(), RuntimeError),
        (StopAsyncIteration(), RuntimeError),
        (ValueError("bug"), ValueError),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_a_failure_arrives_after_the_items_before_it(
    shard: Shard, read: Read, raised: BaseException, seen: type[BaseException]
) -> None:
    async def produce() -> AsyncIterator[int]:
        yield 1
        yield 2
        raise raised

    found, error = read(shard, produce)
    assert found == [1, 2] and isinstance(error, seen)
    assert settled(shard)


class Stubborn:
    """Gives two items and cannot be closed."""

    def __init__(self) -> None:
        self.left = 2

    def __aiter__(self) -> Stubborn:
        return self

    async def __anext__(self) -> int:
        if not self.left:
            raise StopAsyncIteration
        self.left -= 1
        return self.left

    async def aclose(self) -> None:
        raise DataError("cannot be closed")


@reads
def test_clean_up_that_fails_is_an_error_at_the_end(shard: Shard, read: Read) -> None:
    found, error = read(shard, Stubborn)
    assert found == [1, 0] and "cannot be closed" in str(error)
    assert settled(shard)


@pytest.mark.parametrize("read", [0, 1])
def test_clean_up_that_fails_is_nobodys_error_when_the_reader_has_left(shard: Shard, read: int) -> None:
    reader = read_ahead(shard, Stubborn, max_bytes=4, size_of=size_of)
    for _ in range(read):
        next(reader)
    reader.close()
    assert settled(shard)


@reads
def test_a_size_that_cannot_be_told_is_an_error(shard: Shard, read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_size(item: object) -> int:
        raise ValueError("no size")

    monkeypatch.setitem(globals(), "size_of", no_size)
    assert isinstance(read(shard, lambda: numbers(3))[1], ValueError)


def test_an_idle_reader_asks_whether_it_is_still_wanted(shard: Shard) -> None:
    idle = IdleSource()
    left = threading.Event()

    reader = read_ahead(shard, idle.items, max_bytes=4, size_of=size_of, still_wanted=lambda: not left.is_set())
    assert list(next(reader)) == [0]
    left.set()
    with pytest.raises(Stopped):
        next(reader)
    assert idle.closed.is_set()


def test_what_the_question_raises_reaches_the_reader(shard: Shard) -> None:
    def wanted() -> bool:
        raise DataError("cancelled by somebody")

    reader = read_ahead(shard, IdleSource().items, max_bytes=4, size_of=size_of, still_wanted=wanted)
    assert list(next(reader)) == [0]
    with pytest.raises(DataError, match="cancelled by somebody"):
        next(reader)


def test_closing_cancels_the_source_and_waits_for_its_clean_up(shard: Shard) -> None:
    idle = IdleSource()
    reader = read_ahead(shard, idle.items, max_bytes=4, size_of=size_of)
    assert list(next(reader)) == [0]
    reader.close()
    assert idle.closed.is_set()
    assert settled(shard)


async def test_a_coroutine_that_leaves_waits_for_the_clean_up(shard: Shard) -> None:
    idle = IdleSource()
    items = across(shard, idle.items, max_bytes=4, size_of=size_of)
    assert await anext(items) == 0
    await items.aclose()
    assert idle.closed.is_set()
    await items.aclose()
    assert settled(shard)


async def test_a_coroutine_that_is_cancelled_can_close(shard: Shard) -> None:
    idle = IdleSource()

    async def read(begun: asyncio.Event) -> None:
        async with contextlib.aclosing(across(shard, idle.items, max_bytes=4, size_of=size_of)) as items:
            async for _ in items:
                begun.set()

    begun = asyncio.Event()
    reader = asyncio.create_task(read(begun))
    await begun.wait()
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert idle.closed.is_set()
    assert settled(shard)


def test_closing_a_source_that_waits_for_room(shard: Shard) -> None:
    reader = read_ahead(shard, lambda: numbers(100), max_bytes=1, size_of=size_of)
    assert next(reader)
    reader.close()
    assert settled(shard)


def test_a_reader_that_is_stopped_does_not_see_an_end(shard: Shard) -> None:
    stops: list[Callable[[], object]] = []

    def stop_by(tell: Callable[[], object] | None) -> None:
        if tell is not None:
            stops.append(tell)

    reader = read_ahead(shard, lambda: numbers(3), max_bytes=100, size_of=size_of, when_stopped=stop_by)
    until(lambda: not tasks_of(shard))  # everything waits for the reader, and the source has ended
    stops[0]()
    with pytest.raises(Cancelled):
        next(reader)


def test_one_that_is_stopped_and_closed_is_cleaned_up_to_its_end(shard: Shard) -> None:
    cleaning, go_on, cleaned = threading.Event(), asyncio.Event(), threading.Event()
    stops: list[Callable[[], object]] = []

    async def items() -> AsyncIterator[int]:
        try:
            yield 0
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await go_on.wait()
            cleaned.set()

    def stop_by(tell: Callable[[], object] | None) -> None:
        if tell is not None:
            stops.append(tell)

    reader = read_ahead(shard, items, max_bytes=4, size_of=size_of, when_stopped=stop_by)
    assert list(next(reader)) == [0]
    for stop in stops * 2:
        stop()
    assert cleaning.wait(SOON)
    closing = threading.Thread(target=reader.close)
    closing.start()
    tasks_of(shard)  # the loop has turned since
    shard.loop.call_soon_threadsafe(go_on.set)
    closing.join()
    assert cleaned.is_set()


def test_closing_the_shard_is_an_error_to_a_thread_and_not_an_end() -> None:
    shard = Shard("short-lived").start()
    idle = IdleSource()
    reader = read_ahead(shard, idle.items, max_bytes=4, size_of=size_of)
    assert list(next(reader)) == [0]
    shard.close()
    with pytest.raises(Stopped):
        next(reader)
    assert idle.closed.is_set()


async def test_closing_the_shard_is_an_error_to_a_coroutine_and_not_an_end() -> None:
    shard = Shard("short-lived").start()
    idle = IdleSource()
    items = across(shard, idle.items, max_bytes=4, size_of=size_of)
    assert await anext(items) == 0
    await asyncio.get_running_loop().run_in_executor(None, shard.close)
    with pytest.raises(Stopped):
        await anext(items)
    with pytest.raises(Stopped, match="closed"):
        await anext(across(shard, idle.items, max_bytes=4, size_of=size_of))
    assert idle.closed.is_set()


def test_a_source_that_never_began_is_an_error_and_not_an_end() -> None:
    shard = Shard("never-begun")
    reader = read_ahead(shard, lambda: numbers(3), max_bytes=4, size_of=size_of)
    shard.start()
    shard.close()
    found: Sequence[int] = ()
    with contextlib.suppress(Stopped):
        found = list(chain.from_iterable(reader))
        assert list(found) == [0, 1, 2]


def test_on_its_own_loop_nothing_is_crossed(shard: Shard) -> None:
    async def read() -> list[int]:
        return [item async for item in across(shard, lambda: numbers(100), max_bytes=3, size_of=size_of)]

    assert shard.submit(read()).result(SOON) == list(range(100))
