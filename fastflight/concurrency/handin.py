"""From a blocking producer to an async consumer.

A thread `put`s items, and blocks while `max_bytes` are waiting; a coroutine iterates them and takes all that waits in
one lot. With a `governor`, fewer wait where memory is scarce. `finish` is the iterator's end, `fail` its error, after
the items before it; one that comes at once drops those that still wait, and counts also where `finish` was said: what
was dropped must not look like an end. A consumer that leaves calls `aclose` (or `close`, from any thread). From either
on `put` raises `Stopped`, and a blocked one wakes at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Generic, TypeVar

from fastflight.concurrency.governor import UNGOVERNED, Governor
from fastflight.concurrency.turn import Turn
from fastflight.errors import Stopped

T = TypeVar("T")

# How often a blocked producer asks whether its items are still wanted.
POLL_SECONDS = 0.02


def always() -> bool:
    """For producers that only the consumer can stop."""
    return True


class HandIn(AsyncIterator[T], Generic[T]):
    """Items on their way from one thread to one coroutine of `loop`.

    While `put` blocks, `still_wanted` is asked every `POLL_SECONDS`: `Stopped` is raised once it says no.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        max_bytes: int,
        still_wanted: Callable[[], bool] = always,
        governor: Governor = UNGOVERNED,
    ) -> None:
        self._loop = loop
        self._max_bytes = max_bytes
        self._still_wanted = still_wanted
        self._changed = threading.Condition()
        self._waiting: deque[T] = deque()
        self._bytes = 0
        # What the consumer took last, and may still hold.
        self._taken = 0
        self._account = governor.account()
        self._full = False
        self._ended = False
        self._error: BaseException | None = None
        self._closed = False
        self._dropped = False
        self._reader_sleeps = False
        # The reader's own, touched on the loop only.
        self._lot: deque[T] = deque()
        self._exhausted = False
        self._arrived = asyncio.Event()
        self._turn = Turn()

    @property
    def exhausted(self) -> bool:
        """Whether the consumer has taken everything and seen the end."""
        return self._exhausted

    @property
    def starving(self) -> bool:
        """Whether the consumer has taken everything, and waits for more."""
        return self._reader_sleeps

    def put(self, item: T, size: int) -> None:
        """Hand in one item of `size` bytes. Blocks while there is no room; `Stopped` when the consumer has gone."""
        with self._changed:
            while self._full and not self._closed and not self._dropped:
                self._changed.wait(POLL_SECONDS)
                if self._loop.is_closed() or not self._still_wanted():
                    self._closed = True
            if self._closed or self._dropped:
                raise Stopped("nobody takes what is handed in")
            self._waiting.append(item)
            self._bytes += size
            has_share = self._account.hold(self._bytes + self._taken)
            self._full = not has_share or self._bytes >= self._max_bytes
            wake, self._reader_sleeps = self._reader_sleeps, False
        if wake:
            self._wake_reader()

    def finish(self) -> None:
        """There are no more items."""
        self._end(None)

    def fail(self, error: BaseException, *, at_once: bool = False) -> None:
        """There are no more items because of `error`: raised to the consumer after the items before it.

        With `at_once` what still waits is dropped, and the error comes next, whatever was said before.
        """
        if at_once:
            with self._changed:
                self._dropped = self._ended = True
                self._error = self._error or error
                self._drop()
        self._end(error)

    def close(self) -> None:
        """The consumer has gone. From any thread."""
        with self._changed:
            self._closed = True
            self._drop()
        self._wake_reader()

    async def aclose(self) -> None:
        """The consumer has gone."""
        self._lot.clear()
        self.close()

    def __aiter__(self) -> HandIn[T]:
        return self

    async def __anext__(self) -> T:
        if self._turn.over:
            await self._turn.leave()
        if self._dropped:
            self._lot.clear()
        while not self._lot:
            with self._changed:
                self._lot, self._waiting = self._waiting, deque()
                self._taken, self._bytes, self._full = self._bytes, 0, False
                self._account.hold(self._taken)
                self._changed.notify()
                if not self._lot:
                    if self._ended and self._error is not None:
                        raise self._error
                    if self._ended or self._closed:
                        self._exhausted = self._ended
                        raise StopAsyncIteration
                    self._arrived.clear()
                    self._reader_sleeps = True
            if not self._lot:
                await self._arrived.wait()
        return self._lot.popleft()

    def _drop(self) -> None:
        """Nothing waits any more, and who waited for room need not. `_changed` is held."""
        self._waiting.clear()
        self._bytes = 0
        self._account.hold(0)
        self._changed.notify_all()

    def _end(self, error: BaseException | None) -> None:
        with self._changed:
            if not self._ended:
                self._ended, self._error = True, error
        self._wake_reader()

    def _wake_reader(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: `put` notices
            self._loop.call_soon_threadsafe(self._arrived.set)
