"""A guard goes on after a look that failed."""

from __future__ import annotations

import threading

from structlog.testing import capture_logs

from fastflight.concurrency.guard import Guard

SOON = 10.0


def test_a_guard_goes_on_after_looks_that_fail_and_logs_the_first() -> None:
    looks = iter([True, True, False, True])
    done = threading.Event()

    def look() -> None:
        fails = next(looks, None)
        if fails:
            raise ValueError("it cannot be seen")
        if fails is None:
            done.set()

    with capture_logs() as logs:
        guard = Guard(look, 0.001, "guard")
        guard.start()
        assert done.wait(SOON)
        guard.close()
        guard.close()
    assert [(line["event"], line["guard"]) for line in logs] == [("a guard failed and goes on", "guard")] * 2


def test_a_guard_that_was_not_started_can_be_closed() -> None:
    Guard(lambda: None, 1.0, "guard").close()
