"""Several blocking iterations side by side, in threads of their own, as one iterator.

At most `limit` of the `jobs` run at a time, begun in their order; what they give waits for the consumer, bounded by
`max_bytes` in all. `ordered`, it comes job by job, else as it comes. The first error of a job ends everything and is
raised at once. `close` ends the iteration from any thread; a job sees it at its next item, and its iterator is closed.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from fastflight.concurrency.gathered import Gathered
from fastflight.concurrency.governor import UNGOVERNED, Governor
from fastflight.errors import Stopped

T = TypeVar("T")

# How long the consumer waits before it gets a sign of life, where it asks for one.
IDLE_SECONDS = 0.1


class Gather(Iterator[T], Generic[T]):
    """The items of all `jobs`. With `idle`, what that gives comes every `IDLE_SECONDS` in which nothing else does."""

    def __init__(
        self,
        jobs: Sequence[Callable[[], Iterable[T]]],
        *,
        limit: int,
        max_bytes: int,
        size_of: Callable[[T], int],
        ordered: bool = False,
        idle: Callable[[], T] | None = None,
        name: str = "gather",
        governor: Governor = UNGOVERNED,
    ) -> None:
        self._idle = idle
        # The threads know only this, so that they do not keep alive what nobody iterates any more.
        self._shared = _Shared(jobs, Gathered[T](len(jobs), max_bytes, ordered, governor), size_of)
        self._threads = [
            threading.Thread(
                target=contextvars.copy_context().run, args=(self._shared.work,), name=f"{name}-{number}", daemon=True
            )
            for number in range(min(limit, len(jobs)))
        ]
        for thread in self._threads:
            thread.start()

    def __next__(self) -> T:
        shared = self._shared
        with shared.changed:
            while True:
                if shared.error is not None:
                    raise shared.error
                if shared.closed or shared.gathered.done:
                    raise StopIteration
                taken = shared.gathered.take()
                shared.changed.notify_all()  # there is room, or it is another one's turn
                if taken:
                    return taken[0]
                if not shared.changed.wait(None if self._idle is None else IDLE_SECONDS) and self._idle is not None:
                    return self._idle()

    def stop(self) -> None:
        """End it, and do not wait for the jobs. From any thread."""
        with self._shared.changed:
            self._shared.closed = True
            self._shared.gathered.close()
            self._shared.changed.notify_all()

    def close(self, timeout: float | None = None) -> None:
        """End it, and wait until every job has seen that, or for `timeout` seconds."""
        self.stop()
        deadline = None if timeout is None else time.monotonic() + timeout
        for thread in self._threads:
            thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))

    def __del__(self) -> None:
        if hasattr(self, "_shared"):
            self.stop()


class _Shared(Generic[T]):
    """What the threads and the consumer share, guarded by `changed`."""

    def __init__(
        self, jobs: Sequence[Callable[[], Iterable[T]]], gathered: Gathered[T], size_of: Callable[[T], int]
    ) -> None:
        self.changed = threading.Condition()
        self.gathered = gathered
        self.error: BaseException | None = None
        self.closed = False
        self._jobs = enumerate(jobs)
        self._size_of = size_of

    def work(self) -> None:
        """Do jobs, one after another, until there are no more."""
        try:
            while (job := self._next_job()) is not None:
                number, begin = job
                self._iterate(number, begin())
                with self.changed:
                    self.gathered.end(number)
                    self.changed.notify_all()
        except BaseException as error:
            with self.changed:
                if not self.closed:
                    self.error = error
                self.closed = True
                self.changed.notify_all()

    def _next_job(self) -> tuple[int, Callable[[], Iterable[T]]] | None:
        with self.changed:
            return None if self.closed else next(self._jobs, None)

    def _iterate(self, number: int, items: Iterable[T]) -> None:
        try:
            for item in items:
                self._put(number, item, self._size_of(item))
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                close()

    def _put(self, number: int, item: T, size: int) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.closed or self.gathered.has_room(number))
            if self.closed:
                raise Stopped("nobody takes what is gathered")
            self.gathered.add(number, item, size)
            self.changed.notify_all()
