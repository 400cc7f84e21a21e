"""Work that goes on when the task that awaits it is cancelled.

`off_loop` runs a blocking function in a thread and awaits its result. A thread cannot be cancelled: if the awaiting
task is, the call runs on, and its result (an open port, say) goes to `discard`, in a thread as well. `unbroken` runs a
coroutine to its end.
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
        # Nobody awaits it any more: if it fails, asyncio must not report that.
        running.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        if call.abandon():
            # Not in the executor, which may be busy for long, and drops what waits when the loop is closed.
            try:
                threading.Thread(target=call.dispose, name="discard-offload", daemon=True).start()
            except RuntimeError:  # the system has no other thread left
                asyncio.get_running_loop().run_in_executor(None, call.dispose)
        raise


# A shard that closes cancels all tasks but these.
_unbroken: WeakSet[asyncio.Task[Any]] = WeakSet()


async def unbroken(work: Coroutine[Any, Any, T]) -> T:
    """Await `work` to its end, however often cancelled meanwhile; then raise `CancelledError` if it was."""
    running = _begin(work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        # It may be cancelled again, by a reader that closes a stopped source: what follows `work` must not overtake it.
        while not running.done() or inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
            if running.done():  # `asyncio.run` cancels all tasks when it ends: this one before its first step
                running = _begin(work)
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        if not running.cancelled():
            running.exception()  # nobody awaits it any more: if it failed, asyncio must not report that
        raise


def is_unbroken(task: asyncio.Task[Any]) -> bool:
    """Whether it runs the work of an `unbroken`: only the task that awaits it is to be cancelled."""
    return task in _unbroken


def _begin(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    async def run() -> T:
        return await work

    running = asyncio.get_running_loop().create_task(run())
    _unbroken.add(running)
    return running


class _Call:
    """One call. Its result goes either to the awaiting task or to `discard`, never to both."""

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
        """Nobody awaits the result. True if there is one already, which the caller must dispose of."""
        with self._lock:
            self._abandoned = True
            return bool(self._results)

    def dispose(self) -> None:
        if self._discard is not None:
            self._discard(self._results[0])
