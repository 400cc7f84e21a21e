"""Threads by kind."""

from __future__ import annotations

import threading

from fastflight.concurrency import Shards
from fastflight.service.threads import by_kind


def test_every_thread_is_accounted_for_once() -> None:
    ended = threading.Event()
    threads = [threading.Thread(target=ended.wait, name=name) for name in ("acks", "serial read /dev/ttyX", "mine")]
    with Shards(2):
        before = by_kind(0)
        for thread in threads:
            thread.start()
        kinds = by_kind(0)
        ended.set()
        for thread in threads:
            thread.join()
    assert (kinds["shards"], kinds["beside_handlers"], kinds["lines"], kinds["main"]) == (2, 1, 1, 1)
    assert kinds["other"] == before["other"] + 1
    assert kinds["all"] == sum(count for kind, count in kinds.items() if kind != "all")


def test_handlers_are_part_of_all() -> None:
    kinds = by_kind(1000)
    assert kinds["handlers"] == 1000
    assert kinds["all"] == sum(count for kind, count in kinds.items() if kind != "all")
