"""Blocking calls away from the loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from fastflight.concurrency import Shard, off_loop
from fastflight.concurrency.offload import unbroken
from fastflight.errors import TransportError

SOON = 60.0


async def test_the_result_and_the_error_of_a_call() -> None:
    def refuse() -> None:
        raise TransportError("no such port")

    assert await off_loop(lambda a, b: a + b, 1, 2) == 3
    with pytest.raises(TransportError):
        await off_loop(refuse)


async def test_what_a_cancelled_call_opened_is_discarded() -> None:
    begun, go_on, discarded = threading.Event(), threading.Event(), threading.Event()

    def open_port() -> str:
        begun.set()
        go_on.wait(SOON)
        return "port"

    def discard(port: str) -> None:
        assert port == "port"
        discarded.set()

    opening = asyncio.create_task(off_loop(open_port, discard=discard))
    await asyncio.to_thread(begun.wait, SOON)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert not discarded.is_set()
    go_on.set()
    assert await asyncio.to_thread(discarded.wait, SOON)


def test_what_was_opened_when_its_opener_is_cancelled_is_discarded_though_all_threads_are_busy() -> None:
    begin, opened, go_on, discarded = (threading.Event() for _ in range(4))

    def open_() -> None:
        begin.wait(SOON)
        opened.set()

    with Shard("shard", offload_threads=1) as shard:

        async def run() -> None:
            opening = asyncio.create_task(off_loop(open_, discard=lambda _: discarded.set()))
            await asyncio.sleep(0)
            begin.set()
            assert opened.wait(SOON)  # and this loop does not turn meanwhile
            busy = asyncio.get_running_loop().run_in_executor(None, go_on.wait, SOON)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            assert await asyncio.sleep(0, not busy.done())

        shard.submit(run()).result(SOON)
    assert discarded.wait(SOON)
    go_on.set()


@pytest.mark.parametrize("times", [1, 3])
async def test_what_must_come_to_its_end_does_and_the_cancellation_after_it(times: int) -> None:
    ended: list[str] = []

    async def work(go_on: asyncio.Event) -> str:
        await go_on.wait()
        ended.append("work")
        return "done"

    go_on = asyncio.Event()
    task = asyncio.create_task(unbroken(work(go_on)))
    await asyncio.sleep(0)
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["work"]
    assert await unbroken(work(go_on)) == "done"


def test_what_must_come_to_its_end_does_where_the_loop_ends_before_it_has_begun() -> None:
    ended: list[str] = []

    async def work() -> None:
        await asyncio.sleep(0)
        ended.append("work")

    async def close() -> None:
        ended.append("closing")
        await unbroken(work())

    async def run() -> asyncio.Task[None]:
        return asyncio.create_task(close())  # which has its first step in the loop's last turn, and its work none

    assert asyncio.run(run()).cancelled()
    assert ended == ["closing", "work"]
