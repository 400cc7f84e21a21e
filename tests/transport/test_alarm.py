"""The alarm rings once, at the time that was set last. Time is moved by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from fastflight.concurrency.loops import new_loop
from fastflight.transport.alarm import Alarm


class Handle:
    def __init__(self, when: float, act: Callable[[], None]) -> None:
        self._when = when
        self.act = act
        self.cancelled = False

    def when(self) -> float:
        return self._when

    def cancel(self) -> None:
        self.cancelled = True


class Clock:
    """The part of a loop that keeps time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.handles: list[Handle] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, act: Callable[..., None], *args: Any) -> Handle:
        self.handles.append(Handle(when, lambda: act(*args)))
        return self.handles[-1]

    def move(self, to: float) -> None:
        while due := [handle for handle in self.handles if handle.when() <= to and not handle.cancelled]:
            first = min(due, key=Handle.when)
            self.now = first.when()
            self.handles.remove(first)
            first.act()
        self.now = to


def setting() -> tuple[Clock, list[float], Alarm]:
    clock = Clock()
    rung: list[float] = []
    return clock, rung, Alarm(cast(asyncio.AbstractEventLoop, clock), lambda: rung.append(clock.now))


def test_it_rings_once() -> None:
    clock, rung, alarm = setting()
    alarm.set(2)
    assert alarm.is_set
    clock.move(10)
    assert rung == [2]
    assert not alarm.is_set


def test_set_later_it_rings_later_and_uses_one_timer_for_both() -> None:
    clock, rung, alarm = setting()
    alarm.set(2)
    clock.move(1)
    alarm.set(5)
    assert len(clock.handles) == 1
    clock.move(10)
    assert rung == [6]


def test_set_earlier_it_rings_earlier() -> None:
    clock, rung, alarm = setting()
    alarm.set(5)
    alarm.set(1)
    clock.move(10)
    assert rung == [1]


def test_cleared_it_does_not_ring_until_it_is_set_again() -> None:
    clock, rung, alarm = setting()
    alarm.set(2)
    alarm.clear()
    clock.move(3)
    assert rung == []
    alarm.set(2)
    clock.move(10)
    assert rung == [5]


def test_cancelled_it_leaves_nothing_on_the_loop() -> None:
    clock, rung, alarm = setting()
    alarm.set(2)
    alarm.cancel()
    assert all(handle.cancelled for handle in clock.handles)
    clock.move(10)
    assert rung == []


@pytest.mark.parametrize("loops", [asyncio.new_event_loop, new_loop])
def test_set_anew_after_a_time_that_had_come_already(loops: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """uvloop has no timer for such a time, but calls as soon as it can: there is no `when` to ask for."""

    async def ring() -> None:
        rung = asyncio.Event()
        alarm = Alarm(asyncio.get_running_loop(), rung.set)
        alarm.set(-1.0)
        alarm.set(0.0)
        await rung.wait()
        assert not alarm.is_set

    with asyncio.Runner(loop_factory=loops) as runner:
        runner.run(ring())
