"""Every target over its seeds, what once broke it, and some of hypothesis's bytes: atheris is not needed."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.campaigns.fuzz.target import PROPERTIES, Target, load, names

# Properties are tests already: here it is enough that the fuzzer finds them.
TARGETS = {name: load(name) for name in names() if name not in PROPERTIES}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_what_is_kept_of_each_target_holds(target: Target) -> None:
    assert target.seeds
    with target.running():
        for data in (*target.seeds, *target.past):
            assert len(data) <= target.max_bytes
            target.run(data)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_any_bytes_hold(target: Target) -> None:
    begun = st.sampled_from([*target.seeds, *target.past])
    mutated = st.builds(
        lambda data, at, middle, skipped: data[:at] + middle + data[at + skipped :],
        begun, st.integers(0, target.max_bytes), st.binary(max_size=8), st.integers(0, 16),
    )  # fmt: skip

    @settings(max_examples=40, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.binary(max_size=target.max_bytes) | mutated)
    def holds(data: bytes) -> None:
        target.run(data[: target.max_bytes])

    with target.running():
        holds()


@pytest.mark.parametrize("name", PROPERTIES)
def test_a_property_takes_bytes(name: str) -> None:
    target = load(name)
    target.run(target.seeds[0])
