"""A pace that sleeps which last too long do not spoil."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fastflight_benchmark.pacer import BatchPacer
from tests.support.clock import ManualClock


class SlowClock(ManualClock):
    """A clock whose sleeps take longer than asked for."""

    slept = 0.0

    def sleep(self, seconds: float, too_long: float) -> None:
        self.now += seconds + too_long
        self.slept += seconds + too_long


@given(
    seconds=st.floats(0.001, 0.1),
    overslept=st.lists(st.floats(0, 0.05), min_size=1, max_size=30),
    between=st.floats(0, 1),
)
def test_sleeps_add_up_to_what_was_asked_and_at_most_one_oversleep(
    seconds: float, overslept: list[float], between: float
) -> None:
    clock = SlowClock()
    pacer = BatchPacer(clock)
    for too_long in overslept:
        clock.sleep(pacer.begin(seconds), too_long)
        pacer.end()
        clock.now += between  # the reader's own time, which is not the source's
    assert clock.slept >= seconds * len(overslept) - 1e-9
    longest = max(sum(overslept[i:]) - seconds * (len(overslept) - i - 1) for i in range(len(overslept)))
    assert clock.slept <= seconds * len(overslept) + max(longest, 0) + 1e-9
