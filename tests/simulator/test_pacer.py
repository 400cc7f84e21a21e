"""The pacer, on a clock that is set by hand."""

from __future__ import annotations

import pytest

from fastflight.simulator.pacer import Pacer
from tests.support.clock import ManualClock


@pytest.mark.parametrize("rate", [30.0, 960.0, 11520.0, 92160.0])
@pytest.mark.parametrize("late", [0.0, 0.0004, 0.003])
def test_the_pace_is_exact_on_average_however_late_the_wake_ups(rate: float, late: float) -> None:
    clock = ManualClock(100.0)
    pacer = Pacer(rate, clock=clock)
    pacer.begin()
    start, left = clock.now, 5000
    while left:
        clock.now = max(clock.now, pacer.next_at(left)) + late
        count = min(left, pacer.due())
        assert count > 0
        pacer.moved(count)
        left -= count
    # Never early, and at most as late as the last wake-up was.
    assert 0 <= clock.now - start - 5000 / rate <= late + 0.01 * 5000 / rate


def test_an_idle_line_saves_nothing_up() -> None:
    clock = ManualClock(100.0)
    pacer = Pacer(1000, clock=clock)
    pacer.begin()
    clock.now += 60
    pacer.begin()
    assert pacer.due() == 0
    clock.now += 0.0101
    assert pacer.due() == 10


@pytest.mark.parametrize(("ahead", "pause", "due"), [(True, 0.04, 40), (True, 0.06, 0), (False, 0.04, 0)])
def test_a_sender_that_is_ahead_keeps_its_line_busy(ahead: bool, pause: float, due: int) -> None:
    clock = ManualClock(100.0)
    pacer = Pacer(1000, fifo=50, clock=clock)
    pacer.begin()
    clock.now += 0.1001
    pacer.moved(pacer.due())
    clock.now += pause
    pacer.begin(ahead=ahead)
    assert pacer.due() == due


def test_a_burst_that_follows_at_once_waits_for_the_one_before() -> None:
    clock = ManualClock(100.0)
    pacer = Pacer(1000, clock=clock)
    pacer.begin()
    pacer.moved(10)
    pacer.begin()
    assert pacer.due() == 0
    assert pacer.next_at(1) == pytest.approx(clock.now + 0.011)
