"""Groups of appends that are written to the disk together, and their tickets.

All appends that wait at one moment, of all logs, share one `Commit`: one write, one sync, and one wake-up for each
event loop, whether they come from one board or a thousand.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Generator
from typing import Any

from fastflight.errors import FastFlightError
from fastflight.log.batch_log import Appended


class Commit:
    """A group of appends that succeed or fail together. The committer calls `finish` once."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._loops: dict[asyncio.AbstractEventLoop, asyncio.Event] = {}
        self._failure: Callable[[], FastFlightError] | None = None

    @property
    def done(self) -> bool:
        return self._ended.is_set()

    def finish(self, failure: Callable[[], FastFlightError] | None = None) -> None:
        """End the commit and wake its waiters. If it has failed, `failure` makes an error for each of them."""
        self._failure = failure
        with self._lock:
            self._ended.set()
            waiting, self._loops = self._loops, {}
        for loop, event in waiting.items():
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits there
                loop.call_soon_threadsafe(event.set)

    def check(self) -> None:
        """Raise the error if the commit has failed."""
        if self._failure is not None:
            raise self._failure()

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


class CommitTicket:
    """The `Ticket` of one append in a commit."""

    __slots__ = ("commit", "first", "last")

    def __init__(self, first: int, last: int, commit: Commit) -> None:
        self.first = first
        self.last = last
        self.commit = commit

    @property
    def done(self) -> bool:
        return self.commit.done

    def result(self, timeout: float | None = None) -> Appended:
        if not self.commit.wait(timeout):
            raise TimeoutError("the disk has not answered yet")
        self.commit.check()
        return Appended(self.first, self.last)

    def __await__(self) -> Generator[Any, None, Appended]:
        if not self.commit.done:
            yield from self.commit.await_end().__await__()
        self.commit.check()
        return Appended(self.first, self.last)
