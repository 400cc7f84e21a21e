"""The way into an event loop from other threads and other loops: runs a coroutine there and returns its result."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from fastflight.concurrency.loops import runs_here

T = TypeVar("T")

# How often a waiting caller checks that the loop still runs. A loop that is closed answers nobody.
CHECK_SECONDS = 0.5


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

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run `coroutine` on the loop and wait for its result. For other threads than that of the loop."""
        future = self._submit(coroutine)
        while not concurrent.futures.wait((future,), CHECK_SECONDS).done:
            if self._loop.is_closed():
                raise self._ended()
        return self._result(future)

    async def acall(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Await the result of `coroutine`, which runs on the loop.

        If the caller is cancelled, the coroutine is cancelled too, and has ended when this raises `CancelledError`. On
        the loop itself it is simply awaited.
        """
        if self.is_here:
            return await coroutine
        outcome: concurrent.futures.Future[T] = concurrent.futures.Future()
        tasks: list[asyncio.Task[T]] = []

        def begin() -> None:
            tasks.append(self._loop.create_task(coroutine))
            tasks[0].add_done_callback(partial(_settle, outcome))

        try:
            self.post(begin)
        except BaseException:
            coroutine.close()
            raise
        done = asyncio.wrap_future(outcome)
        done.add_done_callback(_retrieve)
        try:
            await self._until(done)
        except asyncio.CancelledError:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(lambda: tasks[0].cancel())
            while not done.done() and not self._loop.is_closed():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait((done,), timeout=CHECK_SECONDS)
            raise
        return self._result(outcome)

    async def _until(self, done: asyncio.Future[Any]) -> None:
        while not (await asyncio.wait((done,), timeout=CHECK_SECONDS))[0]:
            if self._loop.is_closed():
                raise self._ended()

    def _submit(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:
            coroutine.close()
            raise self._ended() from None

    def _result(self, future: concurrent.futures.Future[T]) -> T:
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise self._ended() from None


def _settle(outcome: concurrent.futures.Future[T], task: asyncio.Task[T]) -> None:
    """Pass the outcome of an ended task on."""
    if task.cancelled():
        outcome.set_exception(concurrent.futures.CancelledError())
    elif (error := task.exception()) is not None:
        outcome.set_exception(error)
    else:
        outcome.set_result(task.result())


def _retrieve(done: asyncio.Future[Any]) -> None:
    """Retrieve an error: the caller takes it from the other future, and asyncio would report it."""
    if not done.cancelled():
        done.exception()
