"""From an async producer to a blocking consumer: nothing lost, nothing reordered, every end told apart."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.concurrency import Shard, drain, drain_lots
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
            await asyncio.sleep(0)  # clean-up that awaits, as a device's does
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

    assert list(drain(shard, produce(), max_bytes=max_bytes, size_of=size_of)) == items


def test_the_producer_runs_ahead_until_the_bound_and_no_further(shard: Shard) -> None:
    made: list[int] = []
    full = threading.Event()

    async def produce() -> AsyncIterator[int]:
        for number in range(100):
            made.append(number)
            if number == 3:
                asyncio.get_running_loop().call_soon(full.set)
            yield number

    drained = drain(shard, produce(), max_bytes=4, size_of=size_of)
    assert full.wait(SOON)
    tasks_of(shard)  # the loop has had a turn since: a producer without a bound would be further
    assert made == [0, 1, 2, 3]
    assert list(drained) == list(range(100))


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
    shard: Shard, raised: BaseException, seen: type[BaseException]
) -> None:
    async def produce() -> AsyncIterator[int]:
        yield 1
        yield 2
        raise raised

    drained = drain(shard, produce(), max_bytes=10, size_of=size_of)
    assert [next(drained), next(drained)] == [1, 2]
    with pytest.raises(seen):
        next(drained)
    assert tasks_of(shard) == 0


@pytest.mark.parametrize("read", [0, 1])
def test_clean_up_that_fails_is_an_error_at_the_end_and_nobodys_when_closed(shard: Shard, read: int) -> None:
    class Stubborn:
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

    drained = drain(shard, Stubborn(), max_bytes=4, size_of=size_of)
    for _ in range(read):
        next(drained)
    drained.close()
    drained = drain(shard, Stubborn(), max_bytes=4, size_of=size_of)
    assert [next(drained), next(drained)] == [1, 0]
    with pytest.raises(DataError, match="cannot be closed"):
        next(drained)
    assert tasks_of(shard) == 0


def test_an_idle_reader_is_looked_after_by_another_thread(shard: Shard) -> None:
    idle = Idle()
    asked: list[str] = []
    left = threading.Event()

    def wanted() -> bool:
        asked.append(threading.current_thread().name)
        return not left.is_set()

    drained = drain(shard, idle.items(), max_bytes=4, size_of=size_of, still_wanted=wanted)
    assert next(drained) == 0
    left.set()
    with pytest.raises(Stopped):
        next(drained)
    assert asked == [f"{shard.name}-lookout"]
    assert idle.closed.is_set()


def test_what_the_question_raises_reaches_the_reader(shard: Shard) -> None:
    def wanted() -> bool:
        raise DataError("cancelled by somebody")

    drained = drain(shard, Idle().items(), max_bytes=4, size_of=size_of, still_wanted=wanted)
    assert next(drained) == 0
    with pytest.raises(DataError, match="cancelled by somebody"):
        next(drained)


def test_a_reader_of_lots_gets_all_that_waits(shard: Shard) -> None:
    made = threading.Event()

    async def produce() -> AsyncIterator[int]:
        for number in range(10):
            yield number
        made.set()
        yield 10

    lots = drain_lots(shard, produce(), max_bytes=100, size_of=size_of)
    assert made.wait(SOON)
    tasks_of(shard)
    assert next(lots) == list(range(11))
    assert list(lots) == []


def test_a_size_that_cannot_be_told_is_an_error(shard: Shard) -> None:
    def no_size(item: int) -> int:
        raise ValueError("no size")

    with pytest.raises(ValueError, match="no size"):
        list(drain(shard, numbers(3), max_bytes=4, size_of=no_size))


def test_closing_cancels_the_producer_and_waits_for_its_clean_up(shard: Shard) -> None:
    idle = Idle()
    drained = drain(shard, idle.items(), max_bytes=4, size_of=size_of)
    assert next(drained) == 0
    drained.close()
    assert idle.closed.is_set()
    assert tasks_of(shard) == 0


def test_closing_a_producer_that_waits_for_room(shard: Shard) -> None:
    drained = drain(shard, numbers(100), max_bytes=1, size_of=size_of)
    assert next(drained) == 0
    drained.close()
    assert tasks_of(shard) == 0


def test_an_iterator_that_was_never_read_is_closed_too(shard: Shard) -> None:
    class Held:
        closed = False

        def __aiter__(self) -> Held:
            return self

        async def __anext__(self) -> int:
            await asyncio.Event().wait()
            return 0

        async def aclose(self) -> None:
            self.closed = True

    held = Held()
    drain(shard, held, max_bytes=4, size_of=size_of).close()
    assert held.closed
    assert tasks_of(shard) == 0


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

    lots = drain_lots(shard, items(), max_bytes=4, size_of=size_of, when_stopped=stop_by)
    assert next(lots) == [0]
    for stop in stops * 2:
        stop()
    assert cleaning.wait(SOON)
    closing = threading.Thread(target=lots.close)
    closing.start()
    tasks_of(shard)  # the loop has turned since
    shard.loop.call_soon_threadsafe(go_on.set)
    closing.join()
    assert cleaned.is_set()


def test_a_reader_that_waits_notices_that_nobody_wants_the_rest(shard: Shard) -> None:
    idle = Idle()
    answers = iter([True, True, False])
    drained = drain(shard, idle.items(), max_bytes=4, size_of=size_of, still_wanted=lambda: next(answers))
    assert next(drained) == 0
    with pytest.raises(Stopped):
        next(drained)
    assert idle.closed.is_set()


def test_closing_the_shard_is_an_error_to_the_reader_not_an_end() -> None:
    shard = Shard("short-lived").start()
    idle = Idle()
    drained = drain(shard, idle.items(), max_bytes=4, size_of=size_of)
    assert next(drained) == 0
    shard.close()
    with pytest.raises(Stopped):
        next(drained)
    assert idle.closed.is_set()


def test_many_readers_at_once(shard: Shard) -> None:
    async def produce(start: int) -> AsyncIterator[int]:
        for number in range(start, start + 500):
            if number % 7 == 0:
                await asyncio.sleep(0)
            yield number

    results: dict[int, list[int]] = {}

    def read(start: int) -> None:
        results[start] = list(drain(shard, produce(start), max_bytes=3, size_of=size_of))

    threads = [threading.Thread(target=read, args=(start,)) for start in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)
    assert results == {start: list(range(start, start + 500)) for start in range(8)}
    assert tasks_of(shard) == 0
