"""What a step of an answer costs in Flight's threads: no call of a Python function."""

from __future__ import annotations

import contextvars
import gc
import inspect
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pyarrow.flight as flight
import pytest

from fastflight.service import encode
from fastflight.service.choices import Mode
from fastflight_benchmark.mock import Mock

from .conftest import TrialServer

# An end is not a step like others, and an async answer waits now and then.
RARELY = 8
# Once a second an answer looks for its client: how often that is depends on the computer, not on the code.
LOOKS_FOR_ITS_CLIENT = {"Stream.passing", "Stream.check", "Context.is_cancelled"}


class Context:
    """A call, as Flight tells a handler of it."""

    def is_cancelled(self) -> bool:
        return False

    def peer(self) -> str:
        return "ipv4:127.0.0.1:40000"

    def add_header(self, key: str, value: str) -> None:
        """Nobody reads it."""


def called(messages: Iterator[Any]) -> list[list[str]]:
    """The functions that each step calls. Going on with a generator is no call: its frame is there already.

    Without the garbage collector, whose callbacks (hypothesis has one) are called within any step.
    """
    steps: list[list[str]] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and not frame.f_code.co_flags & inspect.CO_GENERATOR:
            steps[-1].append(frame.f_code.co_qualname)

    gc.disable()
    try:
        while True:
            steps.append([])
            sys.setprofile(note)
            try:
                message = next(messages, None)
            finally:
                sys.setprofile(None)
            if message is None:
                return steps
    finally:
        gc.enable()


@pytest.mark.parametrize("path", ["sync", "async"])
@pytest.mark.parametrize(("rows", "batches"), [(1000, 200), (10, 20_000)], ids=["large batches", "small batches"])
def test_a_step_calls_no_function(
    running: TrialServer, path: Mode, rows: int, batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Iterator[Any]] = []
    monkeypatch.setattr(flight, "GeneratorStream", lambda schema, messages: made.append(messages))
    request = Mock(mode=path, rows_per_batch=rows, total_rows=rows * batches)
    # A handler has a context of its own, in which it enters its trace.
    contextvars.copy_context().run(running.server.do_get, Context(), flight.Ticket(encode(request)))
    steps = called(made[0])
    assert len(steps) > RARELY
    assert sum(bool(set(step) - LOOKS_FOR_ITS_CLIENT) for step in steps) <= RARELY, steps


@pytest.mark.parametrize("path", ["sync", "async"])
def test_a_small_answer_is_over_when_it_is_handed_over(
    running: TrialServer, path: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Iterator[Any]] = []
    monkeypatch.setattr(flight, "GeneratorStream", lambda schema, messages: made.append(messages))
    open_ = []
    for rows in (10, 1000):
        request = Mock(mode=path, rows_per_batch=rows, total_rows=rows)
        contextvars.copy_context().run(running.server.do_get, Context(), flight.Ticket(encode(request)))
        open_.append(running.stats()["open"])
    # A thousand rows are 200 kB: more than Flight takes of a client that does not read.
    assert open_ == [0, 1]
    assert [len(called(messages)) for messages in made] == [2, 2]
    assert running.stats()["finished"] == 2
