"""The waits between attempts."""

from hypothesis import given
from hypothesis import strategies as st

from fastflight.bridge.upstream import CAP_SECONDS, FIRST_SECONDS, JITTER, Backoff


def test_waits_grow_up_to_the_cap_and_begin_short_again() -> None:
    backoff = Backoff(1, 5, chance=lambda: 0)
    assert [backoff.next() for _ in range(5)] == [1, 2, 4, 5, 5]
    backoff.reset()
    assert backoff.next() == 1


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_chance_shortens_a_wait_by_a_part_of_it(chances: list[float]) -> None:
    at_random = Backoff(chance=iter(chances).__next__)
    in_step = Backoff(chance=lambda: 0)
    for _ in chances:
        whole = in_step.next()
        assert FIRST_SECONDS * (1 - JITTER) <= whole * (1 - JITTER) <= at_random.next() <= whole <= CAP_SECONDS
