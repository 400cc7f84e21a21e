"""What one has until somebody else wants it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from fastflight.concurrency import Exclusive
from fastflight.concurrency.tenure import Tenure
from fastflight.errors import BusyError

SOON = 10.0


def test_who_uses_it_keeps_it_and_who_does_not_is_told_once() -> None:
    now, told = [0.0], list[float]()
    tenure = Tenure(600, told.append, lambda: now[0])
    now[0] = 500.0
    tenure.use()
    now[0] = 1000.0
    assert tenure.wanted() == 100.0
    assert told == []
    now[0] = 1100.0
    assert (tenure.wanted(), tenure.wanted()) == (0.0, 0.0)
    assert told == [600.0]
    tenure.use()  # too late
    assert tenure.wanted() == 0.0


def test_who_asks_for_what_is_not_used_waits_until_it_is_given_back() -> None:
    now = [0.0]
    lock, left = Exclusive("demo"), threading.Event()

    def hold() -> None:
        lock.acquire("a REPL", 0, lasting=True, tenure=Tenure(600, lambda idle: left.set(), lambda: now[0]))
        held.set()
        assert left.wait(SOON)
        lock.release()

    held = threading.Event()
    holding = threading.Thread(target=hold)
    holding.start()
    assert held.wait(SOON)
    with pytest.raises(BusyError, match="in use by a REPL.*ask again in 600 s: it .*nothing was sent to it for 600 s"):
        lock.acquire("reading", 0)
    assert (left.is_set(), lock.put_out) == (False, 0)
    now[0] = 600.0
    with lock.held("reading", 0):
        assert lock.holder == "reading"
    assert lock.put_out == 1
    holding.join(SOON)


def test_who_would_only_use_idle_time_puts_nobody_out() -> None:
    lock = Exclusive("demo")

    async def run() -> None:
        with lock.held("a REPL", 0, tenure=Tenure(0, lambda idle: pytest.fail("it was put out"))):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0), lock.aheld_until_wanted("listening"):
                    pytest.fail("there was no idle time")

    asyncio.run(run())
