"""An iterator that keeps its maker's context variables, and that can be ended from outside."""

from __future__ import annotations

import contextvars
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
    given = iter(items)
    assert next(given) == 1

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    items.interrupt()
    assert closed == [threading.current_thread().name]
    with pytest.raises(Stopped):
        next(given)


WHOSE: contextvars.ContextVar[str] = contextvars.ContextVar("whose", default="nobody's")


def steps(seen: list[str]) -> Iterator[int]:
    try:
        yield 1
        seen.append(WHOSE.get())
        yield 2
        raise ValueError(WHOSE.get())
    finally:
        seen.append(f"end: {WHOSE.get()}")


def interruptible(seen: list[str]) -> Iterator[int]:
    WHOSE.set("a's")
    return iter(Interruptible(steps(seen), cast(Stream, ResolvedRequest())))


def test_each_step_and_the_end_see_what_the_maker_had_set() -> None:
    seen: list[str] = []
    items = contextvars.copy_context().run(interruptible, seen)
    assert WHOSE.get() == "nobody's"
    assert [next(items), next(items)] == [1, 2]
    with pytest.raises(ValueError, match="a's"):
        next(items)
    assert seen == ["a's", "end: a's"]
