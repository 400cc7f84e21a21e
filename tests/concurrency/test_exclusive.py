"""One holder at a time."""

from __future__ import annotations

import asyncio
import random
import threading

import pytest

from fastflight.concurrency import Exclusive
from fastflight.errors import BusyError

SOON = 10.0


def test_the_holder_is_named_to_who_comes_too_late() -> None:
    now = [100.0]
    lock = Exclusive("demo", clock=lambda: now[0])
    with lock.held("reading /a.csv", 0):
        now[0] = 102.5
        with pytest.raises(BusyError) as raised:
            lock.acquire("writing", 0)
        assert raised.value.holder == "reading /a.csv"
        assert "reading /a.csv for 2.5 s" in str(raised.value)
        assert lock.holder == "reading /a.csv"
    assert lock.holder is None


def test_releasing_what_nobody_holds_is_a_mistake() -> None:
    with pytest.raises(RuntimeError):
        Exclusive().release()


def test_waiters_get_it_in_the_order_they_asked() -> None:
    async def run() -> list[int]:
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
        return order

    assert asyncio.run(run()) == [0, 1, 2, 3, 4]


def test_a_cancelled_waiter_leaves_the_queue() -> None:
    async def run() -> None:
        lock = Exclusive()
        await lock.aacquire("first", 0)
        waiting = asyncio.create_task(lock.aacquire("second", SOON))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        lock.release()
        assert lock.holder is None

    asyncio.run(run())


def test_a_waiter_cancelled_in_the_moment_it_is_handed_the_lock_passes_it_on() -> None:
    async def run() -> None:
        lock = Exclusive()
        await lock.aacquire("first", 0)
        waiting = asyncio.create_task(lock.aacquire("second", SOON))
        await asyncio.sleep(0)
        lock.release()
        assert lock.holder == "second"
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert lock.holder is None

    asyncio.run(run())


def test_a_waiter_whose_loop_has_ended_is_passed_over() -> None:
    lock = Exclusive()
    lock.acquire("first", 0)
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
            with lock.held(f"thread {number}", SOON):
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
