"""Calls that cancellation does not break off: blocking ones away from the loop, and what must come to its end.

`off_loop` runs a function in a thread and awaits its result. A thread cannot be cancelled: when the awaiting task is,
the call runs on, and its result (an open port, say) goes to `discard`, in a thread as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from weakref import WeakSet

T = TypeVar("T")


async def off_loop(function: Callable[..., T], *args: Any, discard: Callable[[T], object] | None = None) -> T:
    """`function(*args)`, run in a thread of the loop's default executor, in the caller's context variables.

    Its exceptions are raised here.
    """
    call = _Call(function, args, discard)
    running = asyncio.get_running_loop().run_in_executor(None, contextvars.copy_context().run, call.run)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        # Nobody awaits it any more: a failure of it is not news.
        running.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        if call.abandon():
            # Not by the executor: it may be busy for long, and what waits there when the loop is closed is dropped.
            try:
                threading.Thread(target=call.dispose, name="discard-offload", daemon=True).start()
            except RuntimeError:  # there is no thread to be had but those
                asyncio.get_running_loop().run_in_executor(None, call.dispose)
        raise


# What ends a loop, and cancels all that runs there, lets these come to their end.
_unbroken: WeakSet[asyncio.Task[Any]] = WeakSet()


async def unbroken(work: Coroutine[Any, Any, T]) -> T:
    """Await `work` to its end, however often cancelled meanwhile: `CancelledError` is raised then, after it."""
    running = _begin(work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        # Once more, by a reader that closes what was stopped: what is given back after `work` would be so during it.
        while not running.done() or inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
            if running.done():  # `asyncio.run` cancels all there is when it ends: this, before its first step
                running = _begin(work)
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        if not running.cancelled():
            running.exception()  # nobody awaits it any more: a failure of it is not news
        raise


def is_unbroken(task: asyncio.Task[Any]) -> bool:
    """Whether it is the work of an `unbroken`: only who awaits that is to be cancelled."""
    return task in _unbroken


def _begin(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    async def run() -> T:
        return await work

    running = asyncio.get_running_loop().create_task(run())
    _unbroken.add(running)
    return running


class _Call:
    """One call, and who takes its result: exactly one of the awaiting task and `discard`."""

    def __init__(
        self, function: Callable[..., Any], args: tuple[Any, ...], discard: Callable[[Any], object] | None
    ) -> None:
        self._function = function
        self._args = args
        self._discard = discard
        self._lock = threading.Lock()
        self._abandoned = False
        self._results: list[Any] = []

    def run(self) -> Any:
        result = self._function(*self._args)
        with self._lock:
            self._results.append(result)
            abandoned = self._abandoned
        if abandoned:
            self.dispose()
        return result

    def abandon(self) -> bool:
        """Nobody awaits the result. True when it is there already, and the caller must dispose of it."""
        with self._lock:
            self._abandoned = True
            return bool(self._results)

    def dispose(self) -> None:
        if self._discard is not None:
            self._discard(self._results[0])
