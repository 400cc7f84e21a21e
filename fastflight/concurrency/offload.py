"""Work that goes on when the task that awaits it is cancelled.

`off_loop` runs a blocking function in a thread and awaits its result. A thread cannot be cancelled: if the awaiting
task is cancelled, the function runs on, and its result (such as an open port) is passed to `discard`, also in a thread.
`unbroken` runs a coroutine to its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar
from weakref import WeakSet

T = TypeVar("T")


async def off_loop(
    function: Callable[..., T],
    *args: Any,
    discard: Callable[[T], object] | None = None,
    threads: Executor | None = None,
) -> T:
    """Run `function(*args)` in one of `threads`, by default the loop's executor, in a copy of the caller's context.

    Return its result, or raise its exception.
    """
    call = _Call(function, args, discard)
    running = asyncio.get_running_loop().run_in_executor(threads, contextvars.copy_context().run, call.run)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        # Nothing awaits the result. Retrieve an exception, or asyncio would report it.
        running.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        if call.abandon():
            # Not in the executor, which may be busy for long, and drops waiting calls when the loop is closed.
            try:
                threading.Thread(target=call.dispose, name="discard-offload", daemon=True).start()
            except RuntimeError:  # the system cannot start another thread
                asyncio.get_running_loop().run_in_executor(None, call.dispose)
        raise


# A shard that closes cancels all tasks except these.
_unbroken: WeakSet[asyncio.Task[Any]] = WeakSet()


async def unbroken(work: Coroutine[Any, Any, T]) -> T:
    """Await `work` to its end, even if the caller is cancelled meanwhile; then raise `CancelledError`."""
    running = _begin(work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        # The caller may be cancelled again, by a reader that closes a stopped source. It must still not go on before
        # `work` has ended.
        while not running.done() or inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
            if (
                running.done()
            ):  # `asyncio.run` cancels all tasks at its end, and has cancelled this before its first step
                running = _begin(work)
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        if not running.cancelled():
            running.exception()  # nothing awaits it: retrieve an exception, or asyncio would report it
        raise


def is_unbroken(task: asyncio.Task[Any]) -> bool:
    """Whether the task runs the work of `unbroken`. Do not cancel such a task, but the one that awaits it."""
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
        """Note that nothing awaits the result. Return True if there is one already: the caller must call `dispose`."""
        with self._lock:
            self._abandoned = True
            return bool(self._results)

    def dispose(self) -> None:
        if self._discard is not None:
            self._discard(self._results[0])
