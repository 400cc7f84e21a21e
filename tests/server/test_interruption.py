"""A sync source that is ended from outside."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from fastflight.errors import Stopped
from fastflight.runtime.stream import Stream
from fastflight.server.interruption import Interruptible


class ResolvedRequest(SimpleNamespace):
    """A stream that was stopped."""

    trace = None

    def check(self) -> bool:
        raise Stopped("cancelled by CancelFlightInfo")


def test_where_no_thread_can_be_had_it_is_ended_by_whoever_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []

    def source() -> Iterator[int]:
        try:
            yield 1
            yield 2
        finally:
            closed.append(threading.current_thread().name)

    items = Interruptible(source(), cast(Stream, ResolvedRequest()))
    assert next(items) == 1

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    items.interrupt()
    assert closed == [threading.current_thread().name]
    with pytest.raises(Stopped):
        next(items)
