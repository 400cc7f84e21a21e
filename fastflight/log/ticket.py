"""What an append returns: a ticket, which is done when its group of appends has succeeded or failed."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

from fastflight.errors import FastFlightError
from fastflight.log.values import Appended


class Commit:
    """A group of appends that succeed or fail together. Its writer calls `finish` once."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._loops: dict[asyncio.AbstractEventLoop, asyncio.Event] = {}
        self._make_error: Callable[[], FastFlightError] | None = None

    @property
    def done(self) -> bool:
        return self._ended.is_set()

    def finish(self, make_error: Callable[[], FastFlightError] | None = None) -> None:
        """End the commit and wake its waiters. If it has failed, `make_error` makes an error for each of them."""
        self._make_error = make_error
        with self._lock:
            self._ended.set()
            waiting, self._loops = self._loops, {}
        for loop, event in waiting.items():
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits there
                loop.call_soon_threadsafe(event.set)

    def check(self) -> None:
        """Raise the error if the commit has failed."""
        if self._make_error is not None:
            raise self._make_error()

    def wait(self, timeout: float | None) -> bool:
        return self._ended.wait(timeout)

    async def await_end(self) -> None:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._ended.is_set():
                return
            event = self._loops.get(loop)
            if event is None:
                event = self._loops[loop] = asyncio.Event()
        await event.wait()


class Ticket:
    """An append that may still wait for the disk. The append happens even if nobody waits for its ticket."""

    __slots__ = ("_commit", "first", "last")

    def __init__(self, first: int, last: int, commit: Commit) -> None:
        # The numbers that the first and the last row get if the append succeeds.
        self.first = first
        self.last = last
        self._commit = commit

    @property
    def done(self) -> bool:
        """Whether the append has ended, so that `result` returns or raises at once."""
        return self._commit.done

    def result(self, timeout: float | None = None) -> Appended:
        """Wait until the rows are durable.

        Raises `StorageError` if the append failed, `TimeoutError` if it has not ended after `timeout` seconds.
        """
        if not self._commit.wait(timeout):
            raise TimeoutError("the disk has not answered yet")
        self._commit.check()
        return Appended(self.first, self.last)
