"""What a server knows of the others: profiles, whose devices come in lists of their own."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fastflight.cluster.directory import LIST_DEVICES, SERVER, Directory, Profile, key_of

MANY = {f"board{number}": f"{number}" for number in range(2 * LIST_DEVICES + 1)}
ALPHA = Profile("alpha", "boot", "grpc://a:1", "", MANY, frozenset({"board1"}), frozenset({"board2"}))


def told(directory: Directory, profile: Profile, revision: int) -> None:
    directory.saw(key_of(SERVER, profile.name), revision, profile.as_json(profile.digest), 0.0)


def test_a_server_is_a_member_when_all_of_its_devices_are_known() -> None:
    directory = Directory(ttl=4.0)
    told(directory, ALPHA, 1)
    lists = [*ALPHA.lists().values()]
    assert len(lists) == 3 and len(json.dumps(ALPHA.as_json(ALPHA.digest))) < 200
    for each in lists:
        assert directory.members(0.0) == {} and directory.listed("alpha") == ""
        directory.saw_list(each)
    assert directory.members(0.0)["alpha"][0] == ALPHA and directory.listed("alpha") == ALPHA.digest


def test_the_earlier_devices_count_until_the_entry_has_the_new_ones() -> None:
    directory = Directory(ttl=4.0)
    fewer = replace(ALPHA, devices={"board1": "1"}, local=frozenset())
    for profile in (ALPHA, fewer):
        for each in profile.lists().values():
            directory.saw_list(each)
        if profile is ALPHA:
            told(directory, ALPHA, 1)
    before = directory.members(0.0)["alpha"][0]
    assert before == ALPHA and directory.listed("alpha") == fewer.digest
    told(directory, ALPHA, 2)
    assert directory.members(0.0)["alpha"][0] is before
    told(directory, fewer, 3)
    assert directory.members(0.0)["alpha"][0] == fewer


@pytest.mark.parametrize(
    "change", [{"server": None}, {"number": "x"}, {"count": None}, {"devices": 7}, {"local": 7}, {"digest": "other"}]
)
def test_lists_that_are_none_are_ignored(change: dict[str, object]) -> None:
    directory = Directory(ttl=4.0)
    (content,) = replace(ALPHA, devices={"a": "1"}).lists().values()
    directory.saw_list({key: value for key, value in {**content, **change}.items() if value is not None})
    told(directory, replace(ALPHA, devices={"a": "1"}), 1)
    assert directory.members(0.0) == {}
    directory.saw_list({})
