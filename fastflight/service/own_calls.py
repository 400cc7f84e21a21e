"""Calls the functions of a user's own source.

Whatever the user's code raises becomes a `SourceError` with the name of the source, whose details are in the log.
Errors of `fastflight.errors` are passed on as they are, so that a source can refuse a request with `RequestError`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from fastflight.concurrency.threads import Overdue, TimedThread, call_within
from fastflight.errors import FastFlightError, SourceError
from fastflight.lazy import Logger

T = TypeVar("T")

log = Logger(__name__)

# Threads of one source whose function has not returned in time. Each may hold memory, and nothing can end it.
MAX_OVERDUE = 16


class LateError(SourceError):
    """A function has taken longer than the source may. It may still run."""


class OwnCalls:
    """The calls of the functions of one source. Each may take `timeout` seconds; None for no limit.

    `type_name` is the type of its requests, and `name` what errors call the source.
    """

    def __init__(self, type_name: str, name: str, timeout: float | None) -> None:
        self._type_name = type_name
        self._name = name
        self._timeout = timeout
        self._overdue: set[threading.Thread] = set()

    def unlimited(self, function_name: str, function: Callable[..., T], *args: Any) -> T:
        """Call a function without a time limit."""
        try:
            return function(*args)
        except BaseException as error:
            raise self._failure(function_name, error) from None

    def limited(
        self,
        function_name: str,
        function: Callable[..., T],
        *args: Any,
        late: Callable[[], object] | None = None,
        thread: TimedThread | None = None,
    ) -> T:
        """Call a function, in `thread` if the source has a time limit.

        If it is late, raise `LateError`, and call `late` when it has returned.
        """
        if self._timeout is None:
            return self.unlimited(function_name, function, *args)
        self._check_overdue()
        try:
            if thread is None:
                return self.unlimited(function_name, partial(call_within, self._timeout, function, *args))
            return self.unlimited(function_name, partial(thread.call, self._timeout, function, *args, late=late))
        except Overdue as overdue:
            self._overdue.add(overdue.thread)
            raise self._late(function_name) from None

    async def awaited(self, step: Awaitable[T]) -> T:
        """Await a step of `aread`."""
        try:
            async with asyncio.timeout(self._timeout) as limit:
                return await step
        except BaseException as error:
            raise self._late("aread") if limit.expired() else self._failure("aread", error) from None

    def _check_overdue(self) -> None:
        """Raise `SourceError` if so many threads have not returned that no more may be started."""
        for thread in tuple(self._overdue):
            if not thread.is_alive():
                self._overdue.discard(thread)
        if len(self._overdue) >= MAX_OVERDUE:
            raise SourceError(
                f"{MAX_OVERDUE} of its earlier calls have not returned",
                where=self._name,
                hint="Try again when they have, or restart the server",
            )

    def _late(self, function_name: str) -> SourceError:
        log.error("source is late", source=self._type_name, function=function_name, timeout=self._timeout)
        return LateError(
            f"{function_name} has given nothing for {self._timeout:g} s",
            where=self._name,
            hint="Ask for less, or try again later",
        )

    def _failure(self, function_name: str, error: BaseException) -> BaseException:
        """Return the error that the client gets for an exception of a user's function.

        Errors of fastflight are returned as they are. Of others the client learns the type, and the log the traceback.
        """
        if isinstance(error, FastFlightError | Overdue):
            return error
        if isinstance(error, asyncio.CancelledError) and _is_cancelled():
            return error
        log.error("source failed", source=self._type_name, function=function_name, exc_info=error)
        return SourceError(
            f"{function_name} raised {type(error).__name__}", where=self._name, hint="See the server's log"
        )


def _is_cancelled() -> bool:
    """Whether the running task was cancelled. Else its code has raised `CancelledError` by itself."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop runs in this thread
        return False
    return task is not None and task.cancelling() > 0
