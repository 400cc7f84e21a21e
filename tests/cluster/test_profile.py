"""What servers say of themselves: profiles, whose devices come in lists of their own."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fastflight.cluster.profile import LIST_DEVICES, Lists, Profile

MANY = {f"board{number}": f"{number}" for number in range(2 * LIST_DEVICES + 1)}
ALPHA = Profile("alpha", "boot", "grpc://a:1", "", MANY, frozenset({"board1"}), frozenset({"board2"}))


def test_a_profile_is_known_when_all_of_its_devices_are() -> None:
    lists, entry = Lists(), ALPHA.as_json(ALPHA.digest)
    parts = [*ALPHA.lists().values()]
    assert len(parts) == 3 and len(json.dumps(entry)) < 200
    for each in parts:
        assert lists.profile(entry) is None and lists.digest("alpha") == ""
        lists.saw(each)
    assert lists.profile(entry) == ALPHA and lists.digest("alpha") == ALPHA.digest


def test_the_earlier_devices_count_until_the_entry_has_the_new_ones() -> None:
    lists = Lists()
    fewer = replace(ALPHA, devices={"board1": "1"}, local=frozenset())
    for profile in (ALPHA, fewer):
        for each in profile.lists().values():
            lists.saw(each)
    entry = ALPHA.as_json(ALPHA.digest)
    before = lists.profile(entry)
    assert before == ALPHA and lists.digest("alpha") == fewer.digest
    assert lists.profile(entry) is before
    assert lists.profile(fewer.as_json(fewer.digest)) == fewer


@pytest.mark.parametrize(
    "change", [{"server": None}, {"number": "x"}, {"count": None}, {"devices": 7}, {"local": 7}, {"digest": "other"}]
)
def test_lists_that_are_none_are_ignored(change: dict[str, object]) -> None:
    lists, one = Lists(), replace(ALPHA, devices={"a": "1"})
    (content,) = one.lists().values()
    lists.saw({key: value for key, value in {**content, **change}.items() if value is not None})
    assert lists.profile(one.as_json(one.digest)) is None
    lists.saw({})
