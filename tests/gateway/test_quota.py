"""Places that names share: no name keeps another out, and neither do some of them together."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.errors import ResourceExhausted
from fastflight.gateway.http.quota import Quota
from tests.support.refusals import refused

MOST, MOST_OF_ONE = 8, 4


def places(newest: bool = False) -> Quota[int]:
    return Quota(MOST, MOST_OF_ONE, "seats", retry_seconds=5, hint="Wait", newest=newest)


def fill(taken: Quota[int], *names: str | None) -> None:
    for number, name in enumerate(names, start=len(taken)):
        assert taken.take(name, number) is None


def test_one_name_has_so_many_and_no_more() -> None:
    taken = places()
    fill(taken, *["ada"] * MOST_OF_ONE)
    with pytest.raises(ResourceExhausted, match="there are 4 seats of ada, as many as there may be. Wait") as full:
        taken.take("ada", 9)
    assert (full.value.scope, full.value.limit, full.value.retry_after_seconds) == ("identity", MOST_OF_ONE, 5)
    taken.leave("ada", 0)
    assert taken.take("ada", 9) is None


@pytest.mark.parametrize(("newest", "evicted"), [(False, (0, 1)), (True, (6, 7))])
def test_names_together_keep_no_other_out(newest: bool, evicted: tuple[int, int]) -> None:
    taken = places(newest)
    fill(taken, "ada", "bob", "ada", "bob", "ada", "bob", "ada", "bob")
    assert (taken.take("eve", 8), taken.take("eve", 9)) == evicted
    with refused(ResourceExhausted, limit=8):
        taken.take("ada", 10)
    assert len(taken) == MOST


def test_who_is_not_known_by_name_shares_with_all_such() -> None:
    taken = places()
    fill(taken, *[None] * MOST)
    with pytest.raises(ResourceExhausted) as full:
        taken.take(None, 8)
    assert full.value.scope == "server"
    assert taken.take("ada", 8) == 0


@given(st.lists(st.sampled_from("abcdefghijk"), max_size=60))
def test_whoever_has_none_gets_one_as_long_as_anybody_has_two(names: list[str]) -> None:
    taken = places()
    held: dict[int, str] = {}
    for number, name in enumerate(names):
        before = Counter(held.values())
        try:
            evicted = taken.take(name, number)
        except ResourceExhausted as full:
            assert before[name] == MOST_OF_ONE or (len(held) == MOST and max(before.values()) <= before[name] + 1)
            assert before[name] or full.limit == MOST == len(before)
            continue
        if evicted is not None:
            assert len(held) == MOST
            other = held.pop(evicted)
            assert before[other] == max(before.values()) > before[name] + 1
            taken.leave(other, evicted)  # which changes nothing
        held[number] = name
        assert len(taken) == len(held) <= MOST
