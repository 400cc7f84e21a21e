"""The one bounded hand-over between a producer and a consumer, each of them a thread or a coroutine.

The producer adds items until `max_bytes` wait, then waits for room. The consumer takes all that waits in one lot, so
that crossing threads costs one lock for a lot, and a wake-up only where the other side sleeps.

A channel ends in exactly one of three ways:

- `finish`: the consumer gets what waits, and then the end.
- `fail`: the consumer gets what waits, and then the error.
- `cancel`, by either side or by anybody else: what waits is dropped, and both sides get `Cancelled`, or the error that
  it was cancelled with. That counts also after `finish`: what was dropped never looks like an end.

The core (`add`, `has_room`, `poll`, `finish`, `fail`, `cancel`) never waits and may be called from any thread. Threads
wait in `put`, `take`, `lots` and iteration; coroutines in `room`, `atake` and asynchronous iteration. There is one
consumer; a channel may have several producers, of which the last one to end says `finish`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from functools import partial
from typing import Generic, TypeAlias, TypeVar

from fastflight.concurrency.loops import Turn
from fastflight.errors import FastFlightError, Stopped

T = TypeVar("T")

# Wakes a side that waits. Called from any thread.
Wake: TypeAlias = Callable[[], object]
# Waits for an event. False: it gives up, and so does the call that waits. It may raise instead.
Wait: TypeAlias = Callable[[threading.Event], bool]


class Cancelled(Stopped):
    """The channel was cancelled: by the other side, which has left, or from outside."""


def failure_of(raised: BaseException) -> Exception:
    """The exception to raise for `raised`.

    It is `raised` itself, unless that would end more than the answer, or look as if the reader had left: then it is
    another one with `raised` as its cause, which for a cancelled source is `Stopped`.
    """
    failure: Exception
    if isinstance(raised, asyncio.CancelledError | concurrent.futures.CancelledError):
        failure = Stopped("the source was cancelled", hint="Ask again")
    elif isinstance(raised, Exception):
        return raised
    else:
        failure = FastFlightError(f"the source raised {type(raised).__name__}")
    failure.__cause__ = raised
    return failure


class Channel(Iterator[T], AsyncIterator[T], Generic[T]):
    """Items on their way from producers to one consumer, at most `max_bytes` and one item of them waiting."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._waiting: deque[T] = deque()
        self._bytes = 0
        self._ended = False
        self._cancelled = False
        # An error holds the frames that it went through, and their batches: `cancel` drops it for that reason.
        self._error: BaseException | None = None
        # Sides that sleep; each is woken once.
        self._consumer: Wake | None = None
        self._producers: list[Wake] = []
        # The consumer's own: what it took and has not looked at, and whether it has seen the end.
        self._lot: deque[T] = deque()
        self._turn = Turn()
        self.exhausted = False

    @property
    def starving(self) -> bool:
        """Whether the consumer has taken everything, and waits for more."""
        return self._consumer is not None

    def add(self, item: T, size: int) -> bool:
        """Hand over one item of `size` bytes. False when the next one should wait for room. `Cancelled`."""
        with self._lock:
            self._check_wanted()
            self._waiting.append(item)
            self._bytes += size
            wake, self._consumer = self._consumer, None
            room = self._bytes < self._max_bytes
        if wake is not None:
            _wake((wake,))
        return room

    def has_room(self, wake: Wake) -> bool:
        """Whether an item may be added now; if not, `wake` is called once that may have changed. `Cancelled`."""
        with self._lock:
            self._check_wanted()
            if self._bytes < self._max_bytes:
                return True
            self._producers.append(wake)
            return False

    def poll(self, wake: Wake) -> deque[T] | None:
        """All that waits, at least one item; empty at the end. None: nothing yet, and `wake` is called later.

        Raises the error that the channel ended with, or `Cancelled`.
        """
        with self._lock:
            if self._cancelled:
                raise self._error or Cancelled("what waited was dropped")
            if not self._waiting and not self._ended:
                self._consumer = wake
                return None
            if not self._waiting:
                if self._error is not None:
                    raise self._error
                self.exhausted = True
            lot, self._waiting, self._bytes = self._waiting, deque(), 0
            producers, self._producers = self._producers, []
        _wake(producers)
        return lot

    def finish(self) -> None:
        """There are no more items."""
        self._end(None)

    def fail(self, error: BaseException) -> None:
        """There are no more items because of `error`."""
        self._end(error)

    def cancel(self, error: BaseException | None = None) -> None:
        """Drop what waits and wake both sides. The consumer gets the first error that anybody gave, or `Cancelled`.

        Without an `error` the consumer has left: an earlier one is dropped, since nobody will ask for it.
        """
        with self._lock:
            if error is None:
                self._error = None
            elif not self._cancelled:
                self._error = self._error or error
            self._cancelled = True
            self._waiting = deque()
            self._bytes = 0
            wakes, self._producers = self._producers, []
            if self._consumer is not None:
                wakes.append(self._consumer)
                self._consumer = None
        _wake(wakes)

    def check(self) -> None:
        """Raise what the channel was cancelled with: for a consumer that takes its time over an item."""
        if self._cancelled:
            raise self._error or Cancelled("what waited was dropped")

    # For threads.

    def put(self, item: T, size: int, wait: Wait = threading.Event.wait) -> None:
        """Add one item, once there is room."""
        room = threading.Event()
        while not self.has_room(room.set):
            wait(room)
            room.clear()
        self.add(item, size)

    def take(self, wait: Wait = threading.Event.wait) -> deque[T] | None:
        """All that waits, at least one item; empty at the end. None when `wait` gives up."""
        came = threading.Event()
        while (lot := self.poll(came.set)) is None:
            if not wait(came):
                return None
            came.clear()
        return lot

    def lots(self, look: Callable[[], object], seconds: float) -> Iterator[deque[T]]:
        """What `take` gives, to the end. While it waits, it calls `look` every so many seconds, which may raise.

        A step that need not wait calls no function (`docs/architecture.md`, "Flight's threads").
        """
        came = threading.Lock()
        came.acquire()
        while True:
            with self._lock:
                if self._cancelled:
                    raise self._error or Cancelled("what waited was dropped")
                lot, self._waiting, self._bytes = self._waiting, deque(), 0
                producers, self._producers = self._producers, []
                ended = self._ended
                if not lot and not ended:
                    self._consumer = came.release
            for wake in producers:
                try:
                    wake()
                except RuntimeError:  # as in `_wake`, whose `suppress` would be a call
                    pass
            if lot:
                yield lot
            elif ended:
                break
            else:
                while not came.acquire(timeout=seconds):
                    look()
        if self._error is not None:
            raise self._error
        self.exhausted = True

    def __next__(self) -> T:
        self.check()
        if not self._lot:
            self._lot = self.take() or deque()
        if not self._lot:
            raise StopIteration
        return self._lot.popleft()

    def close(self) -> None:
        """The consumer has left."""
        self.cancel()

    # For coroutines.

    async def aput(self, item: T, size: int) -> None:
        """Add one item, once there is room."""
        await self.room()
        self.add(item, size)

    async def room(self) -> None:
        """Wait until an item may be added."""
        room, wake = loop_event()
        while not self.has_room(wake):
            await room.wait()
            room.clear()

    async def atake(self) -> deque[T]:
        """All that waits, at least one item; empty at the end."""
        came, wake = loop_event()
        while (lot := self.poll(wake)) is None:
            await came.wait()
            came.clear()
        return lot

    async def __anext__(self) -> T:
        if self._turn.over:
            await self._turn.leave()
        self.check()
        if not self._lot:
            self._lot = await self.atake()
        if not self._lot:
            raise StopAsyncIteration
        return self._lot.popleft()

    async def aclose(self) -> None:
        """The consumer has left."""
        self.cancel()

    def _check_wanted(self) -> None:
        """`_lock` is held."""
        if self._cancelled:
            raise Cancelled("nobody takes the rest")

    def _end(self, error: BaseException | None) -> None:
        with self._lock:
            if self._ended or self._cancelled:
                return
            self._ended, self._error = True, error
            wake, self._consumer = self._consumer, None
        if wake is not None:
            _wake((wake,))


def _wake(wakes: Iterable[Wake]) -> None:
    for wake in wakes:
        with contextlib.suppress(RuntimeError):  # its loop is closed, and the side that waits with it
            wake()


def loop_event() -> tuple[asyncio.Event, Wake]:
    """An event of the running loop, and what sets it from any thread: `RuntimeError` when the loop is closed."""
    event = asyncio.Event()
    return event, partial(asyncio.get_running_loop().call_soon_threadsafe, event.set)
