"""Which server owns a device, and how many devices move when servers come and go."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fastflight.cluster.placement import hashes, ranked, scores

NAMES = st.text(min_size=1, max_size=20)
SERVERS = st.sets(NAMES, min_size=1, max_size=8)


def test_owners_never_change_from_one_version_to_the_next() -> None:
    """Servers of two versions run side by side during an update, and must agree."""
    assert [ranked(f"board-{n}", ["a", "b", "c"])[0] for n in range(8)] == ["c", "b", "c", "c", "c", "c", "b", "c"]


@given(NAMES, SERVERS)
def test_the_order_does_not_depend_on_how_servers_are_listed(device: str, servers: set[str]) -> None:
    assert ranked(device, sorted(servers)) == ranked(device, sorted(servers, reverse=True))
    assert sorted(ranked(device, servers)) == sorted(servers)


@given(NAMES, SERVERS, NAMES)
def test_a_server_that_joins_or_leaves_does_not_reorder_the_others(device: str, servers: set[str], other: str) -> None:
    without = servers - {other}
    assert [each for each in ranked(device, servers | {other}) if each != other] == ranked(device, without)


def test_a_board_that_one_server_can_reach_has_one_possible_owner() -> None:
    assert ranked("usb-board", ["lab"]) == ["lab"]
    assert ranked("usb-board", []) == []


def test_one_device_and_many_are_scored_alike() -> None:
    servers = ["a", "b", "c"]
    devices = [f"board-{n}" for n in range(100)]
    columns = [scores(hashes(devices), server).tolist() for server in hashes(servers)]
    for row, device in enumerate(devices):
        assert ranked(device, servers)[0] == max(zip((column[row] for column in columns), servers, strict=True))[1]


def test_devices_spread_evenly_and_only_those_of_a_dead_server_move() -> None:
    servers, devices = [f"s{n}" for n in range(20)], hashes([f"board-{n}" for n in range(20_000)])
    columns = [scores(devices, server) for server in hashes(servers)]
    owners, without_last = (np.argmax(columns[:count], axis=0) for count in (20, 19))
    assert np.bincount(owners).max() < 1.2 * 1000
    assert ((owners != without_last) == (owners == 19)).all()
