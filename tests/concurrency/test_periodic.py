"""A periodic thread goes on after a call that failed."""

from __future__ import annotations

import threading

from structlog.testing import capture_logs

from fastflight.concurrency.threads import PeriodicThread

SOON = 60.0


def test_it_goes_on_after_calls_that_fail_and_logs_the_first() -> None:
    looks = iter([True, True, False, True])
    done = threading.Event()

    def look() -> None:
        fails = next(looks, None)
        if fails:
            raise ValueError("it cannot be seen")
        if fails is None:
            done.set()

    with capture_logs() as logs:
        thread = PeriodicThread(look, 0.001, "periodic")
        thread.start()
        assert done.wait(SOON)
        thread.close()
        thread.close()
    assert [(line["event"], line["thread"]) for line in logs] == [
        ("a periodic check failed and goes on", "periodic")
    ] * 2


def test_one_that_was_not_started_can_be_closed() -> None:
    PeriodicThread(lambda: None, 1.0, "periodic").close()
