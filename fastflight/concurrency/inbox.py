"""From one thread to another: items in order, bounded by bytes, and an end that both sides can bring about.

A thread `put`s items, and blocks while `max_bytes` are waiting; another iterates. `finish` is the iterator's end,
`fail` its error, after the items before it; one that comes at once drops those that still wait, and counts also where
`finish` was said. `close`, from any thread, ends it at once for both. From either on `put` raises `Stopped`. As
`HandIn`, for a consumer that is a thread. One that has seen the end, and is at work on what it took, is told by
`when_dropped`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from fastflight.concurrency.governor import UNGOVERNED, Governor
from fastflight.errors import Stopped

T = TypeVar("T")

# How often a blocked producer asks whether its items are still wanted.
POLL_SECONDS = 0.02


class Inbox(Iterator[T], Generic[T]):
    """While `put` blocks, `still_wanted` is asked every `POLL_SECONDS`: `Stopped` is raised once it says no."""

    def __init__(self, max_bytes: int, still_wanted: Callable[[], bool], governor: Governor = UNGOVERNED) -> None:
        self._max_bytes = max_bytes
        self._still_wanted = still_wanted
        self._changed = threading.Condition()
        self._waiting: deque[tuple[T, int]] = deque()
        self._bytes = 0
        self._account = governor.account()
        self._full = False
        self._ended = False
        self._error: BaseException | None = None
        self._closed = False
        self._dropped = False
        self._exhausted = False
        self._starving = False
        self._tell: Callable[[], object] | None = None

    @property
    def exhausted(self) -> bool:
        """Whether the consumer has taken everything and seen the end."""
        return self._exhausted

    @property
    def starving(self) -> bool:
        """Whether the consumer has taken everything, and waits for more."""
        return self._starving

    @property
    def dropped(self) -> BaseException | None:
        """Why what waited was dropped; None where it was not."""
        return self._error if self._dropped else None

    def when_dropped(self, tell: Callable[[], object] | None) -> None:
        """Have `tell` called, from any thread, if it fails at once behind the end that the consumer saw."""
        self._tell = tell

    def put(self, item: T, size: int) -> None:
        """Hand in one item of `size` bytes."""
        with self._changed:
            while self._full and not self._closed and not self._dropped:
                self._changed.wait(POLL_SECONDS)
                if not self._still_wanted():
                    self._closed = True
            if self._closed or self._dropped:
                raise Stopped("nobody takes what is handed in")
            self._waiting.append((item, size))
            self._bytes += size
            self._weigh()
            self._changed.notify_all()

    def finish(self) -> None:
        """There are no more items."""
        self._end(None)

    def fail(self, error: BaseException, *, at_once: bool = False) -> None:
        """There are no more items because of `error`.

        With `at_once` what still waits is dropped, and the error comes next, whatever was said before.
        """
        if at_once:
            with self._changed:
                self._dropped = self._ended = True
                self._error = self._error or error
                self._drop()
                tell = self._tell if self._exhausted else None
            if tell is not None:
                tell()
        self._end(error)

    def check(self) -> None:
        """Raise what ended it at once, if anything has: for a consumer that takes its time over an item."""
        if self._dropped and self._error is not None:
            raise self._error

    def close(self) -> None:
        """Nobody wants more of it."""
        with self._changed:
            self._closed = True
            self._drop()

    def __next__(self) -> T:
        with self._changed:
            self._starving = True
            self._changed.wait_for(lambda: self._waiting or self._ended or self._closed)
            self._starving = False
            if self._waiting:
                item, size = self._waiting.popleft()
                self._bytes -= size
                self._weigh()
                self._changed.notify_all()
                return item
            if self._error is not None and not self._closed:
                raise self._error
            self._exhausted = self._ended
            raise StopIteration

    def _drop(self) -> None:
        """Nothing waits any more, and who waited for room need not. `_changed` is held."""
        self._waiting.clear()
        self._bytes = 0
        self._account.hold(0)
        self._changed.notify_all()

    def _weigh(self) -> None:
        """Whether there is room for more. One item there may always be."""
        has_share = self._account.hold(self._bytes)
        self._full = bool(self._waiting) and (not has_share or self._bytes >= self._max_bytes)

    def _end(self, error: BaseException | None) -> None:
        with self._changed:
            if not self._ended:
                self._ended, self._error = True, error
                self._changed.notify_all()
