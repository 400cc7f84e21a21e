"""How many requests a server has under way, as answers come quickly or slowly."""

from __future__ import annotations

from fastflight.cluster.pace import FIRST_PUTS, MAX_PUTS, SLOW_SECONDS, Pace


def test_quick_answers_allow_more_up_to_a_bound() -> None:
    pace = Pace()
    assert pace.allowed == FIRST_PUTS
    for _ in range(4):
        pace.answered(1.0, 1.01)
    assert pace.allowed > FIRST_PUTS
    for _ in range(10 * MAX_PUTS):
        pace.answered(1.0, 1.01)
    assert pace.allowed == MAX_PUTS


def test_slow_answers_to_requests_of_the_same_time_halve_it_once() -> None:
    pace = Pace()
    for _ in range(10 * MAX_PUTS):
        pace.answered(1.0, 1.01)
    for _ in range(MAX_PUTS):
        pace.answered(2.0, 2.0 + SLOW_SECONDS)
    assert pace.allowed == MAX_PUTS // 2
    for number in range(20):
        pace.answered(10.0 + number, 11.0 + number)
    assert pace.allowed == 1
