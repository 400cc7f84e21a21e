"""An event loop in its own thread."""

from __future__ import annotations

import asyncio
import threading

import pytest

from fastflight.concurrency import Shard
from fastflight.concurrency.offload import unbroken
from fastflight.concurrency.shard import LOOPS
from fastflight.errors import Stopped

SOON = 60.0


async def name_of_thread() -> str:
    return threading.current_thread().name


def test_coroutines_run_in_the_shards_thread() -> None:
    with Shard("shard-7") as shard:
        assert shard.submit(name_of_thread()).result(SOON) == "shard-7"
    assert not shard.running


def test_closing_cancels_tasks_and_runs_their_clean_up() -> None:
    begun, cleaned = threading.Event(), threading.Event()

    async def wait() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.set()

    with Shard() as shard:
        future = shard.submit(wait())
        assert begun.wait(SOON)
    assert cleaned.is_set()
    assert future.cancelled()


def test_closing_cancels_what_begins_meanwhile() -> None:
    begun, cleaned = threading.Event(), threading.Event()

    async def later() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    async def wait() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            tasks.append(asyncio.create_task(later()))

    tasks: list[asyncio.Task[None]] = []
    with Shard() as shard:
        shard.submit(wait())
        assert begun.wait(SOON)
    assert cleaned.is_set()


def test_closing_does_not_break_off_what_must_come_to_its_end() -> None:
    begun, ended = threading.Event(), threading.Event()

    async def work() -> None:
        begun.set()
        await asyncio.to_thread(closing.wait, SOON)
        ended.set()

    async def wait() -> None:
        try:
            await unbroken(work())
        finally:
            assert ended.is_set()

    closing = threading.Event()
    shard = Shard().start()
    future = shard.submit(wait())
    assert begun.wait(SOON)
    shard.stop()
    shard.loop.call_soon_threadsafe(closing.set)
    shard.close()
    shard.join(SOON)
    assert ended.is_set()
    assert future.cancelled()


def test_a_closed_shard_takes_nothing() -> None:
    with Shard() as shard:
        pass
    with pytest.raises(Stopped):
        shard.submit(name_of_thread())
    shard.close()


def test_one_that_was_never_started_can_be_closed() -> None:
    Shard().close()


def test_a_task_that_exits_fails_alone() -> None:
    async def leave() -> None:
        raise SystemExit(1)

    with Shard() as shard:
        with pytest.raises(SystemExit):
            shard.submit(leave()).result(SOON)
        assert shard.submit(name_of_thread()).result(SOON) == shard.name


@pytest.mark.parametrize("kind", LOOPS)
def test_a_task_that_exits_when_it_is_closed_takes_no_others_clean_up_away(kind: str) -> None:
    begun, cleaned = threading.Barrier(3), threading.Event()

    async def wait() -> None:
        await asyncio.to_thread(begun.wait, SOON)
        await asyncio.Event().wait()

    async def leave() -> None:
        try:
            await wait()
        finally:
            raise SystemExit(1)

    async def stay() -> None:
        try:
            await wait()
        finally:
            await asyncio.to_thread(cleaned.set)

    with Shard(loops=LOOPS[kind]) as shard:
        left, stayed = shard.submit(leave()), shard.submit(stay())
        begun.wait(SOON)
    assert cleaned.is_set()
    assert stayed.cancelled()
    assert isinstance(left.exception(), SystemExit)


def test_cancelling_the_future_cancels_the_task() -> None:
    begun, cancelled = threading.Event(), threading.Event()

    async def wait() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with Shard() as shard:
        future = shard.submit(wait())
        assert begun.wait(SOON)
        assert future.cancel()
        assert cancelled.wait(SOON)
