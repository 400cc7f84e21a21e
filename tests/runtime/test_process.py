"""Threads by kind."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pytest

from fastflight.concurrency import Shards
from fastflight.runtime import process
from fastflight.runtime.process import threads_by_kind


def test_every_thread_of_python_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "TASKS", "/nowhere")  # threads of Arrow and gRPC come and go
    ended = threading.Event()
    threads = [threading.Thread(target=ended.wait, name=name) for name in ("acks", "serial read /dev/ttyX", "mine")]
    # Other tests' servers may be there.
    before = Counter(threads_by_kind(0))
    with Shards(2):
        for thread in threads:
            thread.start()
        kinds = threads_by_kind(0)
        ended.set()
        for thread in threads:
            thread.join()
    new = {kind: kinds[kind] - before[kind] for kind in ("shards", "beside_handlers", "lines", "main", "other")}
    assert new == {"shards": 2, "beside_handlers": 1, "lines": 1, "main": 0, "other": 1}
    assert kinds["all"] == sum(count for kind, count in kinds.items() if kind != "all")


def test_threads_that_python_does_not_know_are_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(process, "TASKS", "/nowhere")
    known = threads_by_kind(0)
    for number in range(known["all"] + 5):
        (tmp_path / str(number)).touch()
    monkeypatch.setattr(process, "TASKS", str(tmp_path))
    kinds = threads_by_kind(0)
    assert kinds["all"] == known["all"] + 5
    assert kinds["other"] == known.get("other", 0) + 5


def test_handlers_are_part_of_all() -> None:
    kinds = threads_by_kind(1000)
    assert kinds["handlers"] == 1000
    assert kinds["all"] == sum(count for kind, count in kinds.items() if kind != "all")
