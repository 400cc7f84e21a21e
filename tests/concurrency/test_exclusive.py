"""One holder at a time."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from fastflight.concurrency import Exclusive
from fastflight.concurrency.exclusive import IdleClaim
from fastflight.errors import BusyError
from tests.support.clock import ManualClock
from tests.support.refusals import refused

SOON = 60.0


def acquire(lock: Exclusive, holder: str, timeout: float, **options: Any) -> None:
    """Acquire it on a loop of its own."""
    asyncio.run(lock.aacquire(holder, timeout, **options))


@contextlib.contextmanager
def held(lock: Exclusive, holder: str, timeout: float, **options: Any) -> Iterator[None]:
    """Hold it, on a loop of its own."""
    acquire(lock, holder, timeout, **options)
    try:
        yield
    finally:
        lock.release()


def test_the_holder_is_named_to_who_comes_too_late() -> None:
    clock = ManualClock(100.0)
    lock = Exclusive("demo", clock=clock)
    with held(lock, "reading /a.csv", 0):
        clock.now = 102.5
        with pytest.raises(BusyError) as raised:
            acquire(lock, "writing", 0)
        assert raised.value.holder == "reading /a.csv"
        assert "reading /a.csv for 2.5 s" in str(raised.value)
        assert lock.holder == "reading /a.csv"
    assert lock.holder is None


async def test_turns_are_counted_but_not_of_those_that_give_way() -> None:
    lock = Exclusive("demo")
    async with lock.aheld_until_wanted("idle"):
        assert lock.turns == 0
    async with lock.aheld("one", 0):
        assert lock.turns == 1
    async with lock.aheld("two", 0):
        assert lock.turns == 2
    assert lock.turns == 2


def test_releasing_what_nobody_holds_is_a_mistake() -> None:
    with pytest.raises(RuntimeError):
        Exclusive().release()


async def test_waiters_get_it_in_the_order_they_asked() -> None:
    lock = Exclusive()
    await lock.aacquire("first", 0)
    order: list[int] = []

    async def wait(number: int) -> None:
        async with lock.aheld(str(number), SOON):
            order.append(number)

    tasks = [asyncio.create_task(wait(number)) for number in range(5)]
    await asyncio.sleep(0)
    lock.release()
    await asyncio.gather(*tasks)
    assert lock.holder is None
    assert order == [0, 1, 2, 3, 4]


async def test_a_cancelled_waiter_leaves_the_queue() -> None:
    lock = Exclusive()
    await lock.aacquire("first", 0)
    waiting = asyncio.create_task(lock.aacquire("second", SOON))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    lock.release()
    assert lock.holder is None


def test_a_waiter_cancelled_in_the_moment_it_is_handed_the_lock_passes_it_on() -> None:
    async def run(turns: int) -> bool:
        lock = Exclusive()
        await lock.aacquire("first", 0)
        waiting = asyncio.create_task(lock.aacquire("second", SOON))
        await asyncio.sleep(0)
        lock.release()
        assert lock.holder == "second"
        for _ in range(turns):
            await asyncio.sleep(0)
        if waiting.done():  # it was in time
            return False
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert lock.holder is None
        return True

    for turns in itertools.takewhile(lambda turns: asyncio.run(run(turns)), itertools.count()):
        assert turns < 10


def test_a_waiter_whose_loop_has_ended_is_passed_over() -> None:
    lock = Exclusive()
    acquire(lock, "first", 0)
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(lock.aacquire("dead", SOON))
    loop.run_until_complete(asyncio.sleep(0))
    waiting._log_destroy_pending = False  # the loop is closed on purpose with its task waiting
    loop.close()
    lock.release()
    assert lock.holder is None


def test_threads_and_loops_share_it_without_two_holding_it() -> None:
    lock = Exclusive("demo")
    inside: list[int] = []
    most: list[int] = []
    done: list[int] = []

    def enter() -> None:
        inside.append(1)
        most.append(len(inside))

    def leave() -> None:
        inside.pop()
        done.append(1)

    def in_thread(number: int) -> None:
        for _ in range(50):
            with held(lock, f"thread {number}", SOON):
                enter()
                leave()

    async def in_loop() -> None:
        async def use(number: int) -> None:
            chance = random.Random(number)
            for _ in range(50):
                async with lock.aheld(f"task {number}", SOON):
                    enter()
                    if chance.random() < 0.3:
                        await asyncio.sleep(0)
                    leave()

        await asyncio.gather(*(use(number) for number in range(4)))

    threads = [threading.Thread(target=in_thread, args=(number,)) for number in range(3)]
    threads += [threading.Thread(target=asyncio.run, args=(in_loop(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON * 3)
    assert len(done) == 3 * 50 + 2 * 4 * 50
    assert max(most) == 1
    assert lock.holder is None


async def test_who_gives_way_is_not_the_holder_and_lets_the_next_one_in_at_once() -> None:
    lock = Exclusive("demo")
    story: list[str] = []

    async def idle() -> None:
        async with lock.aheld_until_wanted("a listener") as wanted:
            story.append(f"listens, held by {lock.holder}")
            await wanted.wait()
            story.append("gives way")

    listening = asyncio.create_task(idle())
    await asyncio.sleep(0)
    async with lock.aheld("a reader", 0):  # without patience, and without being refused
        story.append(f"held by {lock.holder}")
    await listening
    assert lock.holder is None
    assert story == ["listens, held by None", "gives way", "held by a reader"]


async def test_who_gives_way_comes_after_all_others_and_again_when_they_are_done() -> None:
    lock = Exclusive("demo")
    story: list[str] = []
    listens = asyncio.Event()

    async def idle() -> None:
        for _ in range(2):
            async with lock.aheld_until_wanted("a listener") as wanted:
                story.append("listens")
                listens.set()
                await wanted.wait()

    await lock.aacquire("first", 0)
    listening = asyncio.create_task(idle())
    await asyncio.sleep(0)

    async def use(name: str) -> None:
        async with lock.aheld(name, SOON):
            story.append(name)

    users = [asyncio.create_task(use(name)) for name in ("second", "third")]
    await asyncio.sleep(0)
    lock.release()
    await asyncio.gather(*users)
    for name in ("fourth", "fifth"):
        await listens.wait()
        listens.clear()
        await use(name)
    await listening
    assert story == ["second", "third", "listens", "fourth", "listens", "fifth"]


async def test_who_comes_second_while_somebody_gives_way_is_told_who_will_have_it() -> None:
    lock = Exclusive("demo")
    async with lock.aheld_until_wanted("a listener") as wanted:
        first = asyncio.create_task(lock.aacquire("first", 0))
        await wanted.wait()
        with pytest.raises(BusyError) as raised:
            await lock.aacquire("second", 0)
        assert raised.value.holder == "first"
    await first
    assert lock.holder == "first"


async def test_who_waits_for_idle_time_and_is_cancelled_leaves_the_queue() -> None:
    lock = Exclusive("demo")
    await lock.aacquire("first", 0)

    async def idle() -> None:
        async with lock.aheld_until_wanted("a listener"):
            raise AssertionError("was never to have it")

    waiting = asyncio.create_task(idle())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    lock.release()
    assert lock.holder is None
    await lock.aacquire("second", 0)


def test_a_thread_takes_it_from_who_gives_way_on_a_loop() -> None:
    lock = Exclusive("demo")
    listens = threading.Event()

    async def idle() -> None:
        async with lock.aheld_until_wanted("a listener") as wanted:
            listens.set()
            await wanted.wait()

    listening = threading.Thread(target=asyncio.run, args=(idle(),))
    listening.start()
    assert listens.wait(SOON)
    with held(lock, "a thread", 0):
        assert lock.holder == "a thread"
    listening.join(SOON)


async def test_who_finds_a_lasting_holder_is_told_soon_however_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastflight.concurrency.exclusive.LASTING_SECONDS", 0.0)
    lock = Exclusive("demo")
    async with lock.aheld("a tool", 0, lasting=True):
        with refused(BusyError, holder="a tool"):
            await lock.aacquire("a reader", 3600)


def test_a_waiter_that_fails_before_it_waits_leaves_the_queue() -> None:
    """It would be handed the lock later, and nobody would release it."""

    def fail(idle: float) -> None:
        raise ValueError("the holder cannot be told")

    lock = Exclusive("demo")
    with held(lock, "a terminal", 0, claim=IdleClaim(0.0, fail)):
        with pytest.raises(ValueError, match="cannot be told"):
            acquire(lock, "next", SOON)
    assert lock.holder is None
    acquire(lock, "another one", 0)


def test_who_uses_it_keeps_it_and_who_does_not_is_told_once() -> None:
    clock, told = ManualClock(), list[float]()
    claim = IdleClaim(600, told.append, clock)
    clock.now = 500.0
    claim.use()
    clock.now = 1000.0
    assert not claim.contest()
    assert claim.remaining() == 100.0
    assert told == []
    clock.now = 1100.0
    assert claim.contest() and claim.contest()
    assert told == [600.0]
    claim.use()  # too late
    assert claim.contest()


def test_who_asks_for_what_is_not_used_waits_until_it_is_given_back() -> None:
    clock = ManualClock()
    lock, left = Exclusive("demo"), threading.Event()

    def hold() -> None:
        acquire(lock, "a REPL", 0, lasting=True, claim=IdleClaim(600, lambda idle: left.set(), clock))
        has_it.set()
        assert left.wait(SOON)
        lock.release()

    has_it = threading.Event()
    holding = threading.Thread(target=hold)
    holding.start()
    assert has_it.wait(SOON)
    with pytest.raises(BusyError, match="in use by a REPL.*ask again in 600 s: it .*nothing was sent to it for 600 s"):
        acquire(lock, "reading", 0)
    assert (left.is_set(), lock.evicted) == (False, 0)
    clock.now = 600.0
    with held(lock, "reading", 0):
        assert lock.holder == "reading"
    assert lock.evicted == 1
    holding.join(SOON)


async def test_who_would_only_use_idle_time_puts_nobody_out() -> None:
    lock = Exclusive("demo")
    async with lock.aheld("a REPL", 0, claim=IdleClaim(0, lambda idle: pytest.fail("it was put out"))):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0), lock.aheld_until_wanted("listening"):
                pytest.fail("there was no idle time")
