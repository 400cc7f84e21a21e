"""Iterations side by side, in threads and on a loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial

import pytest

from fastflight.concurrency import Cancelled
from fastflight.concurrency.gather import AsyncGather, Gather

SOON = 60.0
Run = Callable[..., list[int]]


def size(item: int) -> int:
    return 1


def in_threads(jobs: Sequence[Sequence[int]], *, limit: int, max_bytes: int, ordered: bool) -> list[int]:
    gather = Gather(
        [partial(iter, job) for job in jobs], limit=limit, max_bytes=max_bytes, size_of=size, ordered=ordered
    )
    try:
        return list(gather)
    finally:
        gather.close()


def on_a_loop(jobs: Sequence[Sequence[int]], *, limit: int, max_bytes: int, ordered: bool) -> list[int]:
    async def each(job: Sequence[int]) -> AsyncIterator[int]:
        for item in job:
            await asyncio.sleep(0)
            yield item

    async def main() -> list[int]:
        gather = AsyncGather(
            [partial(each, job) for job in jobs], limit=limit, max_bytes=max_bytes, size_of=size, ordered=ordered
        )
        try:
            return [item async for item in gather]
        finally:
            await gather.aclose()

    return asyncio.run(main())


@pytest.mark.parametrize("run", [in_threads, on_a_loop])
@pytest.mark.parametrize("limit", [1, 3, 100])
@pytest.mark.parametrize("max_bytes", [1, 7, 10_000])
def test_every_item_comes_once_and_in_the_order_that_was_asked_for(run: Run, limit: int, max_bytes: int) -> None:
    jobs = [list(range(start, start + length)) for start, length in ((0, 5), (10, 0), (20, 1), (30, 9), (40, 3))]
    everything = [item for job in jobs for item in job]
    assert run(jobs, limit=limit, max_bytes=max_bytes, ordered=True) == everything
    assert sorted(run(jobs, limit=limit, max_bytes=max_bytes, ordered=False)) == everything
    assert run([], limit=limit, max_bytes=max_bytes, ordered=True) == []


class IterationFailed(Exception):
    """What a job raises."""


def failing() -> Iterator[int]:
    yield 1
    raise IterationFailed


def test_the_first_error_ends_the_whole_and_closes_the_other_jobs() -> None:
    closed = threading.Event()

    def endless() -> Iterator[int]:
        try:
            while True:
                yield 0
        finally:
            closed.set()

    gather = Gather([endless, failing], limit=2, max_bytes=4, size_of=size)
    with pytest.raises(IterationFailed):
        list(gather)
    gather.close()
    assert closed.is_set()


async def test_the_first_error_ends_the_whole_on_a_loop() -> None:
    closed: list[str] = []

    async def endless() -> AsyncIterator[int]:
        try:
            while True:
                yield 0
        finally:
            closed.append("endless")

    async def fails() -> AsyncIterator[int]:
        yield 1
        raise IterationFailed

    gather = AsyncGather([endless, fails], limit=2, max_bytes=4, size_of=size)
    with pytest.raises(IterationFailed):
        [item async for item in gather]
    await gather.aclose()
    assert closed == ["endless"]


async def test_the_clean_up_of_a_job_is_not_broken_off() -> None:
    cleaned: list[str] = []

    async def long() -> AsyncIterator[int]:
        try:
            yield 0
            await asyncio.Event().wait()
        finally:
            for _ in range(10):
                await asyncio.sleep(0)
            cleaned.append("long")

    async def fails() -> AsyncIterator[int]:
        for _ in range(3):
            await asyncio.sleep(0)
        raise IterationFailed
        yield 0

    gather = AsyncGather([long, fails], limit=2, max_bytes=4, size_of=size)
    with pytest.raises(IterationFailed):
        [item async for item in gather]
    await gather.aclose()
    assert cleaned == ["long"]


async def test_a_cancelled_job_is_an_error_and_not_an_end() -> None:
    async def cancelled() -> AsyncIterator[int]:
        yield 1
        raise asyncio.CancelledError

    gather = AsyncGather([cancelled], limit=1, max_bytes=4, size_of=size)
    with pytest.raises(asyncio.CancelledError):
        [item async for item in gather]
    await gather.aclose()


def test_closing_ends_jobs_that_wait_for_room() -> None:
    ended: list[str] = []
    began = threading.Semaphore(0)

    def endless() -> Iterator[int]:
        try:
            began.release()
            while True:
                yield 0
        finally:
            ended.append("endless")

    gather = Gather([endless, endless], limit=2, max_bytes=1, size_of=size)
    assert next(gather) == 0
    for _ in range(2):  # one that has not begun has nothing to end
        assert began.acquire(timeout=SOON)
    gather.close()
    assert ended == ["endless", "endless"]
    with pytest.raises(Cancelled):
        next(gather)


def test_one_that_waits_gets_signs_of_life() -> None:
    go_on = threading.Event()

    def slow() -> Iterator[int]:
        go_on.wait(SOON)
        yield 1

    gather = Gather([slow], limit=1, max_bytes=1, size_of=size, idle=lambda: 0)
    assert next(gather) == 0
    go_on.set()
    assert 1 in gather
    gather.close()


def test_nothing_holds_up_a_gathering_that_nobody_iterates_any_more() -> None:
    began = threading.Event()
    ended = threading.Event()

    def endless() -> Iterator[int]:
        try:
            while True:
                began.set()
                yield 0
        finally:
            ended.set()

    gather = Gather([endless], limit=1, max_bytes=1, size_of=size)
    assert began.wait(SOON)
    del gather
    assert ended.wait(SOON)


@pytest.mark.parametrize("ordered", [False, True])
def test_no_more_waits_than_the_limit_and_an_item_for_each_job(ordered: bool) -> None:
    made = 0
    full = threading.Event()

    def endless() -> Iterator[int]:
        nonlocal made
        while True:
            made += 1
            if made > 40:
                full.set()
            yield 0

    gather = Gather([endless] * 4, limit=4, max_bytes=12, size_of=size, ordered=ordered)
    taken = 0
    while taken < 30:
        next(gather)
        taken += 1
        # What waits, the items in the consumer's hands, and the items that the jobs are about to hand over.
        assert made <= taken + 2 * 12 + 2 * 4
    gather.close()
