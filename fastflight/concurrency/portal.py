"""The way into an event loop from other threads and other loops: runs a coroutine there and returns its result."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar

from fastflight.concurrency.channel import loop_event, runs_here

T = TypeVar("T")

# How often a waiting caller checks that the loop still runs. A loop that is closed answers nobody.
CHECK_SECONDS = 0.5


def _never() -> None:
    """The default of `look`: nothing ends the wait."""


class Portal:
    """Runs coroutines on `loop`, which runs in some thread.

    All methods raise the error that `ended` returns if the loop has ended, or ends meanwhile.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, ended: Callable[[], Exception]) -> None:
        self._loop = loop
        self._ended = ended

    @property
    def is_here(self) -> bool:
        """Whether the caller runs on the loop."""
        return runs_here(self._loop)

    def post(self, callback: Callable[..., object], *args: object) -> None:
        """Call `callback` on the loop soon, and do not wait for it. For any thread."""
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            raise self._ended() from None

    def call(self, coroutine: Coroutine[Any, Any, T], look: Callable[[], object] = _never) -> T:
        """Run `coroutine` on the loop and wait for its result. For other threads than that of the loop.

        `look` is called every `CHECK_SECONDS`. If it raises, or the caller is interrupted, the coroutine is cancelled,
        and has ended when the error is raised here.
        """
        ended = threading.Lock()
        ended.acquire()
        call = self._begin(coroutine, ended.release)
        try:
            while not ended.acquire(timeout=CHECK_SECONDS):
                self._check()
                look()
        except BaseException:
            self._cancel(call)
            while not call.has_ended and not self._loop.is_closed():
                ended.acquire(timeout=CHECK_SECONDS)
            call.close_if_unbegun()
            raise
        return self._result(call)

    async def acall(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Await the result of `coroutine`, which runs on the loop.

        If the caller is cancelled, the coroutine is cancelled too, and has ended when this raises `CancelledError`. On
        the loop itself it is simply awaited.
        """
        if self.is_here:
            return await coroutine
        ended, wake = loop_event()
        call = self._begin(coroutine, wake)
        waiting = asyncio.ensure_future(ended.wait())
        try:
            while not (await asyncio.wait((waiting,), timeout=CHECK_SECONDS))[0]:
                self._check()
        except BaseException:
            self._cancel(call)
            while not waiting.done() and not self._loop.is_closed():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait((waiting,), timeout=CHECK_SECONDS)
            call.close_if_unbegun()
            raise
        finally:
            waiting.cancel()
        return self._result(call)

    @contextlib.contextmanager
    def entered(self, manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Enter and leave `manager` on the loop, for a `with` block of another thread."""
        values: list[T] = []

        async def enter() -> None:
            values.append(await manager.__aenter__())

        try:
            self.call(enter())
            yield values[0]
        except BaseException as error:
            # The caller may be interrupted at the moment when the manager has been entered.
            if not values or not self.call(_leave(manager, error)):
                raise
        else:
            self.call(_leave(manager, None))

    def _begin(self, coroutine: Coroutine[Any, Any, T], ended: Callable[[], object]) -> _Call[T]:
        call = _Call(coroutine, ended)
        try:
            self.post(call.begin)
        except BaseException:
            coroutine.close()
            raise
        return call

    def _cancel(self, call: _Call[Any]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(call.cancel)

    def _check(self) -> None:
        if self._loop.is_closed():
            raise self._ended()

    def _result(self, call: _Call[T]) -> T:
        try:
            return call.task.result()
        except asyncio.CancelledError:
            raise self._ended() from None


class _Call(Generic[T]):
    """A coroutine that runs on a loop. `ended` is called there when it has ended."""

    task: asyncio.Task[T]

    def __init__(self, coroutine: Coroutine[Any, Any, T], ended: Callable[[], object]) -> None:
        self.has_ended = False
        self._coroutine = coroutine
        self._ended = ended

    def begin(self) -> None:
        self.task = asyncio.get_running_loop().create_task(self._coroutine)
        self.task.add_done_callback(self._end)

    def cancel(self) -> None:
        self.task.cancel()

    def close_if_unbegun(self) -> None:
        """Close the coroutine if the loop was closed before it began, and will never begin it."""
        if not hasattr(self, "task"):
            self._coroutine.close()

    def _end(self, task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            task.exception()  # retrieved, in case the caller has been interrupted and does not ask for it
        self.has_ended = True
        with contextlib.suppress(RuntimeError):  # the loop of the caller is closed
            self._ended()


async def _leave(manager: AbstractAsyncContextManager[Any], error: BaseException | None) -> bool:
    """Leave `manager`. Return whether it suppresses `error`, with which the block has ended."""
    if error is None:
        return bool(await manager.__aexit__(None, None, None))
    return bool(await manager.__aexit__(type(error), error, error.__traceback__))
