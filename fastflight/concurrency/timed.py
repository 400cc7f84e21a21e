"""Calls with a time limit, of functions that nothing can interrupt."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError, wait
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


class Overdue(Exception):
    """A call has not returned in time. It goes on in `thread`."""

    def __init__(self, thread: threading.Thread) -> None:
        self.thread = thread


def call_within(seconds: float, function: Callable[..., T], *args: Any, late: Callable[[], object] | None = None) -> T:
    """Call the function in a new thread, in this context. Return its result, or raise its exception.

    Raise `Overdue` if it takes longer. The thread calls `late` when the function has returned nevertheless.
    """
    outcome: Future[T] = Future()

    def run() -> None:
        settle: Callable[[], None]
        try:
            settle = partial(outcome.set_result, function(*args))
        except BaseException as error:
            settle = partial(outcome.set_exception, error)
        try:
            settle()
        except InvalidStateError:  # cancelled
            if late is not None:
                late()

    thread = threading.Thread(target=contextvars.copy_context().run, args=(run,), name="timed-call", daemon=True)
    thread.start()
    if not wait((outcome,), seconds).done and outcome.cancel():
        raise Overdue(thread)
    return outcome.result()
