"""What a server knows of the bucket. `test_claims` has what follows from it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.cluster.directory import Directory
from fastflight.cluster.entries import (
    DEVICE,
    MAX_TTL,
    SERVER,
    DeviceEntry,
    ended_lease,
    key_of,
    name_of,
)
from fastflight.cluster.profile import Profile

TTL = 4.0
ALPHA = Profile("alpha", "boot", "grpc://a:1", devices={"board": "1"})
LEASE = {**ALPHA.as_json(ALPHA.digest), "ttl": TTL, "term": 0, "n": 1}


def known(owner: DeviceEntry | None = None) -> Directory:
    """The lease of alpha, which began with revision 5 and was renewed with 9, and perhaps an owner, since 100."""
    directory = Directory(TTL)
    directory.begin(1)
    directory.saw(ALPHA.listed().key, 1, ALPHA.listed().content, 100.0)
    directory.saw(key_of(SERVER, "alpha"), 5, LEASE, 100.0)
    directory.saw(key_of(SERVER, "alpha"), 9, {**LEASE, "term": 5}, 101.0)
    if owner is not None:
        directory.saw(key_of(DEVICE, "board"), 10, owner.put("board", 0).content, 101.0)
    directory.loaded(101.0)
    return directory


def test_the_owner_of_a_device_is_the_one_whose_lease_has_the_term() -> None:
    directory = known(DeviceEntry(0, 0.0, "alpha", 5, 10, 20))
    assert directory.owner("board", 104.9) == ALPHA and directory.members(104.9) == {"alpha": (ALPHA, 100.0)}
    assert directory.free_since("board", 200.0) is None, "silence alone does not end a lease"
    assert directory.owner("board", 105.0) is None and directory.members(105.0) == {}
    assert directory.members() == {"alpha": (ALPHA, 100.0)}
    entry = directory.device("board")
    assert entry is not None and (entry.first, entry.limit) == (10, 20)
    assert known(DeviceEntry(0, 0.0, "alpha", 4)).owner("board", 102.0) is None


def test_a_device_is_free_when_the_lease_of_its_owner_has_ended_or_begun_anew() -> None:
    directory = known(DeviceEntry(0, 0.0, "alpha", 5))
    directory.saw(key_of(SERVER, "alpha"), 11, ended_lease("alpha", "beta", 9).content, 106.0)
    assert directory.free_since("board", 107.0) == 106.0 and directory.members() == {}
    directory.saw(key_of(SERVER, "alpha"), 12, LEASE, 108.0)
    assert directory.free_since("board", 108.0) == 108.0 and directory.owner("board", 108.0) is None


def test_a_term_that_is_newer_than_what_was_seen_of_the_lease_is_not_over() -> None:
    directory = known(DeviceEntry(0, 0.0, "alpha", 12))
    directory.saw(key_of(SERVER, "alpha"), 11, ended_lease("alpha", "beta", 9).content, 106.0)
    assert directory.free_since("board", 200.0) is None


def test_a_lease_may_be_ended_when_it_was_not_renewed_since_this_server_is_connected() -> None:
    directory = known()
    assert directory.silent(104.9) == [] and directory.silent(105.0) == [("alpha", 9)]
    directory.begin(1)
    assert directory.silent(105.0) == []
    directory.loaded(106.0)
    assert directory.silent(109.9) == [] and directory.silent(110.0) == [("alpha", 9)]


def test_a_server_waits_until_its_name_and_the_bucket_are_free() -> None:
    directory = known()
    assert directory.vacancy("beta", "b", 104.9) is None and directory.vacancy("beta", "b", 105.0) == 0
    assert directory.vacancy("alpha", "boot", 105.0) == 9
    directory.saw(key_of(SERVER, "alpha"), 10, {**LEASE, "term": 5}, 105.0)
    assert directory.vacancy("alpha", "other", 106.0) is None and directory.vacancy("alpha", "other", 109.0) == 10
    # The same bucket is known after the connection was lost, and another one is not.
    directory.begin(1)
    assert directory.vacancy("beta", "b", 110.0) is None
    directory.loaded(110.0)
    assert directory.vacancy("beta", "b", 110.0) == 0
    directory.begin(2)
    directory.loaded(111.0)
    assert directory.vacancy("beta", "b", 114.9) is None and directory.server("alpha") is None
    assert directory.vacancy("beta", "b", 115.0) == 0


def test_an_entry_that_is_missing_or_was_deleted_by_hand_is_free_after_a_while() -> None:
    directory = known(DeviceEntry(0, 0.0, "alpha", 5, 10, 20))
    assert directory.free_since("other", 104.9) is None and directory.free_since("other", 105.0) == 105.0
    directory.saw(key_of(DEVICE, "board"), 12, None, 103.0)
    assert directory.free_since("board", 106.9) is None and directory.free_since("board", 107.0) == 107.0
    entry = directory.device("board")
    assert entry is not None and entry.limit == 20, "its numbers are not used again"
    # A lease that was deleted by hand ends as one that is not renewed.
    directory.saw(key_of(SERVER, "alpha"), 13, None, 104.0)
    assert directory.silent(107.9) == [] and directory.silent(108.0) == [("alpha", 13)]


def test_old_contents_change_nothing() -> None:
    directory = known(DeviceEntry(0, 0.0, "alpha", 5))
    before = directory.server("alpha"), directory.device("board"), directory.generation
    directory.saw(key_of(SERVER, "alpha"), 9, ended_lease("alpha", "beta", 5).content, 106.0)
    directory.saw(key_of(DEVICE, "board"), 3, None, 106.0)
    assert (directory.server("alpha"), directory.device("board"), directory.generation) == before


@pytest.mark.parametrize("ttl", [None, "4", 0, -1, MAX_TTL + 1, float("nan")])
def test_a_time_to_live_that_is_none_is_this_servers_own(ttl: object) -> None:
    directory = Directory(TTL)
    directory.saw(key_of(SERVER, "alpha"), 5, {**LEASE, "ttl": ttl}, 100.0)
    entry = directory.server("alpha")
    assert entry is not None and entry.ttl == TTL


@given(st.text(max_size=64), st.sampled_from([SERVER, DEVICE]))
def test_a_key_has_its_name(name: str, kind: str) -> None:
    assert name_of(key_of(kind, name)) == (kind, name)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
NAMES = st.sampled_from(["server", "boot", "term", "ttl", "ended", "first", "limit", "digest", "devices"])


@given(
    st.text(max_size=12) | st.just(key_of(SERVER, "a")) | st.just(key_of(DEVICE, "d")), st.dictionaries(NAMES, VALUES)
)
def test_what_fastflight_did_not_write_is_no_error(key: str, value: dict[str, object]) -> None:
    directory = known()
    for each in (key, f"list.{key}"):
        directory.saw(each, 20, value, 102.0)
    directory.members(102.0)
    directory.silent(200.0)
    directory.free_since("d", 200.0)
    directory.vacancy("a", "b", 200.0)
    directory.owner("d", 102.0)
