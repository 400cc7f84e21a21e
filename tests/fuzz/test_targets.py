"""Every target over its seeds, what once broke it, and some of hypothesis's bytes: atheris is not needed."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.target import load, names


@pytest.mark.parametrize("name", names())
def test_what_is_kept_of_each_target_holds(name: str) -> None:
    target = load(name)
    assert target.seeds
    for data in (*target.seeds, *target.past):
        assert len(data) <= target.max_bytes
        target.run(data)


@pytest.mark.parametrize("name", names())
def test_any_bytes_hold(name: str) -> None:
    target = load(name)
    begun = st.sampled_from([*target.seeds, *target.past])
    mutated = st.builds(
        lambda data, at, middle, skipped: data[:at] + middle + data[at + skipped :],
        begun, st.integers(0, target.max_bytes), st.binary(max_size=8), st.integers(0, 16),
    )  # fmt: skip

    @settings(max_examples=40, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.binary(max_size=target.max_bytes) | mutated)
    def holds(data: bytes) -> None:
        target.run(data[: target.max_bytes])

    holds()
