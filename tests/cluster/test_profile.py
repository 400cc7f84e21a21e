"""What servers say of themselves: profiles, whose devices come in lists of their own."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fastflight.cluster.profile import Lists, Profile, digest_of

# As many as a fleet file can have, with names of the largest length.
MANY = {f"{number:064}": digest_of(str(number)) for number in range(12_000)}
ONE, OTHER = f"{1:064}", f"{2:064}"
ALPHA = Profile("alpha", "boot", "grpc://a:1", "", MANY, frozenset({ONE}), frozenset({OTHER}))
MAX_MESSAGE_BYTES = 1_000_000


def test_a_profile_is_known_when_its_devices_are() -> None:
    lists, entry = Lists(), ALPHA.as_json(ALPHA.digest)
    assert len(json.dumps(entry)) < 200 and len(json.dumps(ALPHA.listed().content)) < MAX_MESSAGE_BYTES
    assert lists.profile(entry) is None and lists.digest("alpha") == ""
    lists.saw(ALPHA.listed().content)
    assert lists.profile(entry) == ALPHA and lists.digest("alpha") == ALPHA.digest


def test_the_earlier_devices_count_until_the_entry_has_the_new_ones() -> None:
    lists = Lists()
    fewer = replace(ALPHA, devices={ONE: "1"}, local=frozenset())
    # The new ones are seen twice, as by the server that has stored them.
    for profile in (ALPHA, fewer, fewer):
        lists.saw(profile.listed().content)
    entry = ALPHA.as_json(ALPHA.digest)
    before = lists.profile(entry)
    assert before == ALPHA and lists.digest("alpha") == fewer.digest
    assert lists.profile(entry) is before
    assert lists.profile(fewer.as_json(fewer.digest)) == fewer


@pytest.mark.parametrize(
    "change", [{"server": None}, {"devices": 7}, {"devices": "x"}, {"devices": "eJwDAAAAAAE="}, {"digest": "other"}]
)
def test_lists_that_are_none_are_ignored(change: dict[str, object]) -> None:
    lists, one = Lists(), replace(ALPHA, devices={"a": "1"})
    lists.saw({key: value for key, value in {**one.listed().content, **change}.items() if value is not None})
    assert lists.profile(one.as_json(one.digest)) is None
    lists.saw({})
