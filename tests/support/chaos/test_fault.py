"""How faults are written, and drawn."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.chaos import Fault, Kind, Way, drawn


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ("cut:out@1500", Fault(Kind.CUT, Way.OUT, 1500)),
        ("flip:back@0=7", Fault(Kind.FLIP, Way.BACK, 0, 7)),
        ("silence:back@0.25s=2", Fault(Kind.SILENCE, Way.BACK, 0, 2, 0.25)),
        ("slice:out@10", Fault(Kind.SLICE, Way.OUT, 10, 1)),
    ],
)
def test_a_fault_is_read(spec: str, fault: Fault) -> None:
    assert Fault.parse(spec) == fault


@pytest.mark.parametrize(
    "spec",
    [
        "",
        "cut",
        "cut:out",
        "burn:out@1",
        "cut:up@1",
        "cut:out@-1",
        "cut:out@1.5",
        "flip:out@1=8",
        "cut:out@1=1",
        "cut:out@1..2s",
    ],
)
def test_what_is_no_fault_is_refused(spec: str) -> None:
    with pytest.raises(ValueError, match="fault|amount"):
        Fault.parse(spec)


@given(st.sampled_from(Kind), st.integers(0, 2**32))
def test_a_seed_decides_all_of_a_fault_and_its_text_says_it(kind: Kind, seed: int) -> None:
    fault = drawn(random.Random(seed), kind, 1000, 2)
    assert fault == drawn(random.Random(seed), kind, 1000, 2)
    assert Fault.parse(str(fault)) == fault
    assert fault.at < 1000 and (fault.after is None or fault.after <= 2)
