"""The portal: coroutines run on the loop, and their outcome reaches threads and other loops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from fastflight.concurrency import Shard
from fastflight.concurrency.portal import Portal

PATIENCE = 60.0


class Ended(Exception):
    """The error of a portal whose loop has ended."""


@pytest.fixture
def shard() -> Iterator[Shard]:
    with Shard("portal") as running:
        yield running


@pytest.fixture
def portal(shard: Shard) -> Portal:
    return Portal(shard.loop, Ended)


async def here() -> int:
    return threading.get_ident()


async def fail() -> None:
    raise ValueError("no")


def test_a_call_runs_on_the_loop_and_returns_its_result(shard: Shard, portal: Portal) -> None:
    assert portal.call(here()) == asyncio.run(portal.acall(here())) == shard.thread_id
    assert not portal.is_here


def test_a_call_raises_what_the_coroutine_raises(portal: Portal) -> None:
    with pytest.raises(ValueError, match="no"):
        portal.call(fail())
    with pytest.raises(ValueError, match="no"):
        asyncio.run(portal.acall(fail()))


def test_on_the_loop_itself_a_coroutine_is_awaited(shard: Shard, portal: Portal) -> None:
    async def main() -> bool:
        return portal.is_here and await portal.acall(here()) == threading.get_ident()

    assert shard.submit(main()).result(PATIENCE)


def test_callbacks_run_in_order(portal: Portal) -> None:
    seen: list[int] = []
    for number in range(100):
        portal.post(seen.append, number)
    portal.call(here())
    assert seen == list(range(100))


async def test_a_cancelled_call_has_ended_on_the_loop_before_it_raises(portal: Portal) -> None:
    begun, ended = threading.Event(), threading.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(10):
                await asyncio.sleep(0)
            ended.set()

    calling = asyncio.ensure_future(portal.acall(work()))
    assert await asyncio.to_thread(begun.wait, PATIENCE)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert ended.is_set()


def test_a_loop_that_has_ended_is_told() -> None:
    with Shard("ended") as shard:
        portal = Portal(shard.loop, Ended)
    with pytest.raises(Ended):
        portal.call(here())
    with pytest.raises(Ended):
        portal.post(print)
    with pytest.raises(Ended):
        asyncio.run(portal.acall(here()))


def test_a_loop_that_ends_meanwhile_is_told() -> None:
    shard = Shard("ending").start()
    portal, begun = Portal(shard.loop, Ended), threading.Event()

    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    def end() -> None:
        assert begun.wait(PATIENCE)
        shard.close()

    ending = threading.Thread(target=end)
    ending.start()
    with pytest.raises(Ended):
        portal.call(work())
    ending.join()


def test_a_coroutine_that_a_closed_loop_never_begins_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coroutine that nobody awaits is a warning, and warnings are errors here."""
    loop = asyncio.new_event_loop()
    closing = threading.Thread(target=loop.close)
    monkeypatch.setattr(loop, "call_soon_threadsafe", lambda callback, *args: closing.start())
    with pytest.raises(Ended):
        Portal(loop, Ended).call(here())
    closing.join()
