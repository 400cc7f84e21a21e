"""Threads that call functions: periodically (`PeriodicThread`), or within a time limit (`TimedThread`)."""

from __future__ import annotations

import contextvars
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError, wait
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from fastflight.lazy import Logger

T = TypeVar("T")

log = Logger(__name__)


class PeriodicThread:
    """Calls `look` every `seconds`, in a thread called `name`, from `start` to `close`.

    If a call raises, the exception is logged and the calls go on. Of several failures in a row, only the first is
    logged.
    """

    def __init__(self, look: Callable[[], object], seconds: float, name: str) -> None:
        self._look = look
        self._seconds = seconds
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread. Does nothing the second time, or if it was not started."""
        self._closed.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        failing = False
        while not self._closed.wait(self._seconds):
            try:
                self._look()
                failing = False
            except Exception:  # an edge: no caller waits for this thread
                if not failing:
                    log.exception("a periodic check failed and goes on", thread=self._thread.name)
                failing = True


class Overdue(Exception):
    """A call has not returned in time. It goes on in `thread`."""

    def __init__(self, thread: threading.Thread) -> None:
        self.thread = thread


class TimedThread:
    """A thread for functions that nothing can interrupt: each call has a time limit.

    All calls of one `TimedThread` run in the same thread, since some objects, such as a cursor of sqlite3, can be used
    in one thread only. The thread starts with the first call, and ends with `close` or when this object is dropped. It
    calls one function after another: after an `Overdue`, the next call waits for that function.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._end = weakref.finalize(self, self._calls.put, None)
        self._end.atexit = False

    def call(
        self, seconds: float, function: Callable[..., T], *args: Any, late: Callable[[], object] | None = None
    ) -> T:
        """Call the function in the context of the caller. Return its result, or raise its exception.

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

        if self._thread is None:
            self._thread = threading.Thread(target=_run_calls, args=(self._calls,), name="timed-calls", daemon=True)
            self._thread.start()
        self._calls.put(partial(contextvars.copy_context().run, run))
        if not wait((outcome,), seconds).done and outcome.cancel():
            raise Overdue(self._thread)
        return outcome.result()

    def close(self) -> None:
        """End the thread, when its last function has returned."""
        self._end()


def _run_calls(calls: SimpleQueue[Callable[[], None] | None]) -> None:
    while (call := calls.get()) is not None:
        call()
        del call  # it holds what the function was given, until the next call comes


def call_within(seconds: float, function: Callable[..., T], *args: Any) -> T:
    """Call one function in a thread of its own, as `TimedThread.call`."""
    thread = TimedThread()
    try:
        return thread.call(seconds, function, *args)
    finally:
        thread.close()
