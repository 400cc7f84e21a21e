"""Timers, on a clock that is set by hand."""

from __future__ import annotations

import pytest

from fastflight.simulator.timers import Timer, Timers


class TimerBench:
    """Timers, what they called, and the clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[float] = []
        self.errors: list[BaseException] = []
        self.timers = Timers(self.errors.append, lambda: self.now)
        self.timer_class = type("Timer", (Timer,), {"timers": self.timers})

    def run(self, *moments: float) -> list[float]:
        for self.now in moments:
            self.timers.run_due()
        return self.calls


@pytest.fixture
def desk() -> TimerBench:
    return TimerBench()


def test_a_periodic_timer_keeps_its_beat(desk: TimerBench) -> None:
    desk.timer_class(-1).init(mode=Timer.PERIODIC, period=100, callback=lambda timer: desk.calls.append(desk.now))
    assert desk.run(0.05, 0.1, 0.15, 0.23, 0.31) == [0.1, 0.23, 0.31]
    assert desk.timers.run_due() == pytest.approx(0.4)


def test_missed_ticks_stay_missed(desk: TimerBench) -> None:
    desk.timer_class(freq=10, callback=lambda timer: desk.calls.append(desk.now))
    assert desk.run(1.05, 1.06, 1.11) == [1.05, 1.11]


def test_a_tick_is_never_due_at_its_own_moment(desk: TimerBench) -> None:
    desk.timer_class(freq=30, callback=lambda timer: desk.calls.append(desk.now))
    moments = [tick / 30 for tick in range(2, 2000)]
    calls = desk.run(*(moment for moment in moments for _ in range(2)))
    assert len(calls) == len(set(calls)) > 1900


def test_one_shot(desk: TimerBench) -> None:
    desk.timer_class(mode=Timer.ONE_SHOT, period=100, callback=lambda timer: desk.calls.append(desk.now))
    assert desk.run(0.2, 0.4) == [0.2]
    assert desk.timers.run_due() is None


def test_deinit(desk: TimerBench) -> None:
    timer = desk.timer_class(period=100, callback=lambda timer: desk.calls.append(desk.now))
    timer.deinit()
    timer.deinit()
    assert desk.run(1) == []


def test_a_callback_may_stop_another_timer_that_is_due(desk: TimerBench) -> None:
    second = desk.timer_class(period=101, callback=lambda timer: desk.calls.append(desk.now))
    desk.timer_class(period=100, callback=lambda timer: second.deinit())
    assert desk.run(1) == []


def test_a_failing_callback_is_reported_and_goes_on(desk: TimerBench) -> None:
    desk.timer_class(period=100, callback=lambda timer: 1 / 0)
    desk.run(0.1, 0.2)
    assert [type(error) for error in desk.errors] == [ZeroDivisionError] * 2


@pytest.mark.parametrize("options", [{}, {"period": 0}, {"freq": 0}])
def test_a_timer_needs_a_period(desk: TimerBench, options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="period"):
        desk.timer_class(-1).init(**options)
