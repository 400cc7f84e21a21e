"""How often something may be done."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fastflight.gateway.relay_allowance import Allowance


def test_so_often_at_once_and_then_as_time_passes() -> None:
    now = 100.0
    allowance = Allowance(3, 2.0, lambda: now)
    assert [allowance.take() for _ in range(5)] == [True, True, True, False, False]
    now += 0.5
    assert [allowance.take() for _ in range(2)] == [True, False]
    now += 1000
    assert [allowance.take() for _ in range(4)] == [True, True, True, False]


@given(st.lists(st.floats(0, 3), max_size=60))
def test_never_more_than_both_allow(steps: list[float]) -> None:
    now, done = 0.0, 0
    allowance = Allowance(3, 2.0, lambda: now)
    for step in steps:
        now += step
        done += allowance.take()
        assert done <= 3 + 2.0 * now + 1e-6
