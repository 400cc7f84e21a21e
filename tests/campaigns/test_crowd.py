"""The short form of the campaign `crowd`."""

from __future__ import annotations

from multiprocessing import resource_tracker

import pytest

from tests.campaigns.crowd import campaign, crowd


@pytest.fixture(scope="module", autouse=True)
def _tracker() -> None:
    """Python starts it with the first process that it spawns, and keeps it: no leak of the test."""
    resource_tracker.ensure_running()


def test_each_device_has_the_owner_that_it_should_have_after_a_start_a_join_and_a_death() -> None:
    with crowd(devices=60, nodes=1, ttl=3.0) as running:
        campaign(running, servers=3)
    assert running.flaws == []
    assert [event.what for event in running.events] == ["s0, s1 started", "s2 started", "s0 was killed"]
    assert all(event.takes > 0 for event in running.events)
