"""A loop that does not turn is noticed, told in the log with where it is stuck, and told when it turns again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from fastflight.concurrency import Shard, Shards
from fastflight.concurrency import shards as module
from fastflight.concurrency.shards import STUCK_SECONDS
from tests.support.clock import ManualClock
from tests.support.waiting import until

SOON = 60.0


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


@contextmanager
def watched(count: int, clock: ManualClock) -> Iterator[Shards]:
    """Shards that run, without the thread that looks."""
    shards = Shards(count, clock=clock)
    with ExitStack() as running:
        for shard in shards:
            running.enter_context(shard)
        yield shards


def lag(shards: Shards, shard: Shard) -> dict[str, Any]:
    found = next(stats for stats in shards.stats() if stats["name"] == shard.name)
    return {name: found[name] for name in ("lag_ms", "longest_lag_ms", "stuck", "times_stuck")}


def test_a_loop_that_turns_is_asked_and_nothing_is_said() -> None:
    clock = ManualClock(100.0)
    with watched(1, clock) as shards, capture_logs() as logs:
        (shard,) = shards
        for _ in range(3):
            shards.look()
            answered(shard)
            clock.now += 10 * STUCK_SECONDS
        assert lag(shards, shard) == {"lag_ms": 0.0, "longest_lag_ms": 0.0, "stuck": False, "times_stuck": 0}
    assert logs == []


def test_a_blocked_loop_is_reported_once_with_where_it_is() -> None:
    clock = ManualClock(100.0)
    with watched(2, clock) as shards, capture_logs() as logs:
        slow, quick = shards
        with blocked(slow):
            shards.look()
            answered(quick)
            clock.now += STUCK_SECONDS / 2
            shards.look()
            answered(quick)
            assert logs == []
            assert lag(shards, slow)["lag_ms"] == STUCK_SECONDS / 2 * 1000
            clock.now += STUCK_SECONDS / 2
            shards.look()
            shards.look()
            assert [(entry["event"], entry["shard"], entry["seconds"]) for entry in logs] == [
                ("event loop stuck", slow.name, STUCK_SECONDS)
            ]
            assert "wait_where_one_must_not" in logs[0]["stack"]
            assert lag(shards, slow)["stuck"]
            assert not lag(shards, quick)["stuck"]
        answered(slow)
        assert [entry["event"] for entry in logs] == ["event loop stuck", "event loop turns again"]
        assert lag(shards, slow) == {
            "lag_ms": STUCK_SECONDS * 1000,
            "longest_lag_ms": STUCK_SECONDS * 1000,
            "stuck": False,
            "times_stuck": 1,
        }


def test_a_closed_loop_is_not_a_stuck_one() -> None:
    clock = ManualClock(100.0)
    with watched(1, clock) as shards:
        pass
    with capture_logs() as logs:
        shards.look()
        clock.now += 10 * STUCK_SECONDS
        shards.look()
    assert logs == []
    assert not any(stats["stuck"] for stats in shards.stats())


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
            # On a busy computer it may have been late, and reported, before it was blocked.
            until(lambda: slow.name in [entry["name"] for entry in shards.stats() if entry["stuck"]])
