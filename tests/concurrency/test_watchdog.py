"""A loop that does not turn is noticed, told in the log with where it is stuck, and told when it turns again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from structlog.testing import capture_logs

from fastflight.concurrency import Shard, Shards
from fastflight.concurrency import watchdog as module
from fastflight.concurrency.watchdog import STUCK_SECONDS, Watchdog
from tests.support.clock import ManualClock

SOON = 10.0


async def nothing() -> None:
    pass


@contextmanager
def blocked(shard: Shard) -> Iterator[None]:
    """The shard's loop is in a call that does not return, for the length of the block."""
    inside, leave = threading.Event(), threading.Event()

    async def wait_where_one_must_not() -> None:
        inside.set()
        leave.wait(SOON)

    stuck = shard.submit(wait_where_one_must_not())
    assert inside.wait(SOON)
    try:
        yield
    finally:
        leave.set()
        stuck.result(SOON)


def answered(shard: Shard) -> None:
    """Wait until the loop has come to what was asked before."""
    shard.submit(nothing()).result(SOON)


def test_a_loop_that_turns_is_asked_and_nothing_is_said() -> None:
    clock = ManualClock(100.0)
    with Shard() as shard, capture_logs() as logs:
        watchdog = Watchdog([shard], clock=clock)
        for _ in range(3):
            watchdog.look()
            answered(shard)
            clock.now += 10 * STUCK_SECONDS
        watchdog.close()
    assert logs == []
    assert watchdog.stats(shard) == {"lag_ms": 0.0, "longest_lag_ms": 0.0, "stuck": False, "times_stuck": 0}


def test_a_blocked_loop_is_reported_once_with_where_it_is() -> None:
    clock = ManualClock(100.0)
    with Shard("slow") as slow, Shard("quick") as quick, capture_logs() as logs:
        watchdog = Watchdog([slow, quick], clock=clock)
        with blocked(slow):
            watchdog.look()
            answered(quick)
            clock.now += STUCK_SECONDS / 2
            watchdog.look()
            answered(quick)
            assert logs == []
            assert watchdog.stats(slow)["lag_ms"] == STUCK_SECONDS / 2 * 1000
            clock.now += STUCK_SECONDS / 2
            watchdog.look()
            watchdog.look()
            assert [(entry["event"], entry["shard"], entry["seconds"]) for entry in logs] == [
                ("event loop stuck", "slow", STUCK_SECONDS)
            ]
            assert "wait_where_one_must_not" in logs[0]["stack"]
            assert watchdog.stats(slow)["stuck"]
            assert not watchdog.stats(quick)["stuck"]
        answered(slow)
        assert [entry["event"] for entry in logs] == ["event loop stuck", "event loop turns again"]
        assert watchdog.stats(slow) == {
            "lag_ms": STUCK_SECONDS * 1000,
            "longest_lag_ms": STUCK_SECONDS * 1000,
            "stuck": False,
            "times_stuck": 1,
        }


def test_a_closed_loop_is_not_a_stuck_one() -> None:
    clock = ManualClock(100.0)
    with Shard() as shard:
        watchdog = Watchdog([shard], clock=clock)
    with capture_logs() as logs:
        watchdog.look()
        clock.now += 10 * STUCK_SECONDS
        watchdog.look()
    assert logs == []
    assert not watchdog.stats(shard)["stuck"]


def test_a_group_looks_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(module, "STUCK_SECONDS", 0.002)
    reported = threading.Event()
    with Shards(2) as shards:
        slow = shards.of("board")

        def error(event: str, *, shard: str, **_: object) -> None:
            if shard == slow.name:
                reported.set()

        monkeypatch.setattr(module.log, "error", error, raising=False)
        with blocked(slow):
            assert reported.wait(SOON)
            assert slow.name in [entry["name"] for entry in shards.stats() if entry["stuck"]]
