"""A bounded channel between producers and one consumer, each of them a thread or a coroutine.

A producer adds items until `max_bytes` wait, and then waits for room. The consumer takes all waiting items together.
So items that wait together cost one lock, and a wake-up only if the other side sleeps.

A channel ends in exactly one of three ways:

- `finish`: the consumer gets the waiting items, and then the end.
- `fail`: the consumer gets the waiting items, and then the error.
- `cancel`, by any thread: the waiting items are dropped. The consumer gets the error of the cancellation or
  `Cancelled`, the producers get `Cancelled`. This holds after `finish` as well, so dropped items never look like a
  normal end.

The core (`add`, `has_room`, `poll`, `finish`, `fail`, `cancel`) never waits and may be called from any thread. Threads
wait in `put`, `take`, `takes` and iteration, coroutines in `room`, `atake` and asynchronous iteration. If a channel has
several producers, the last one to end calls `finish`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from functools import partial
from typing import Generic, TypeAlias, TypeVar

from fastflight.errors import FastFlightError, Stopped

T = TypeVar("T")

# How long a consumer may keep its loop while items wait: short compared with the other delays of a request, long
# compared with one round of the loop.
TURN_SECONDS = 0.01

# Wakes a side that waits. Called from any thread.
Wake: TypeAlias = Callable[[], object]
# Waits for an event, and returns False to give up the call that waits. It may raise instead.
Wait: TypeAlias = Callable[[threading.Event], bool]


class Cancelled(Stopped):
    """The channel was cancelled, by the other side or from outside."""


def failure_of(raised: BaseException) -> Exception:
    """Return the exception to raise in the reader for an exception of a source.

    An `Exception` is returned as it is. Others would end more than the answer (`SystemExit`), or look as if the reader
    had left (`GeneratorExit`), so they become the cause of a new error. For a cancellation that is `Stopped`.
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
    """A channel in which at most `max_bytes` and one more item wait for the consumer."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._waiting: deque[T] = deque()
        self._bytes = 0
        self._ended = False
        self._cancelled = False
        # An error refers to the frames that it was raised through, and to their batches. So `cancel` drops it.
        self._error: BaseException | None = None
        # Wake the sides that sleep; each is called once.
        self._consumer: Wake | None = None
        self._producers: list[Wake] = []
        # Used by the consumer only: items that it has taken but not yet returned, and whether it has seen the end.
        self._taken: deque[T] = deque()
        # When a consumer on a loop last let other tasks run.
        self._turn_began = time.monotonic()
        self.exhausted = False

    @property
    def starving(self) -> bool:
        """Whether the consumer has taken all items and waits for more."""
        return self._consumer is not None

    def add(self, item: T, size: int) -> bool:
        """Add one item of `size` bytes. Return False if the next one should wait for room.

        Raise `Cancelled` if the channel was cancelled.
        """
        with self._lock:
            self._check_wanted()
            self._waiting.append(item)
            self._bytes += size
            wake, self._consumer = self._consumer, None
            # A consumer that sleeps takes this item at once: meanwhile the next one can be made.
            room = wake is not None or self._bytes < self._max_bytes
        if wake is not None:
            _wake((wake,))
        return room

    def has_room(self, wake: Wake) -> bool:
        """Return whether there is room for an item. If not, `wake` is called once when there may be room.

        Raise `Cancelled` if the channel was cancelled.
        """
        with self._lock:
            self._check_wanted()
            if self._bytes < self._max_bytes:
                return True
            self._producers.append(wake)
            return False

    def poll(self, wake: Wake) -> deque[T] | None:
        """Return all waiting items; an empty deque at the end. If nothing waits, return None.

        In that case `wake` is called once, when there is something to `poll` for: an item, the end or an error.

        Raise the error that the channel ended with, or `Cancelled`.
        """
        with self._lock:
            if self._cancelled:
                raise self._error or Cancelled("the channel was cancelled")
            if not self._waiting and not self._ended:
                self._consumer = wake
                return None
            if not self._waiting:
                if self._error is not None:
                    raise self._error
                self.exhausted = True
            items, self._waiting, self._bytes = self._waiting, deque(), 0
            producers, self._producers = self._producers, []
        _wake(producers)
        return items

    def finish(self) -> None:
        """End the channel: there are no more items."""
        self._end(None)

    def fail(self, error: BaseException) -> None:
        """End the channel with an error."""
        self._end(error)

    def cancel(self, error: BaseException | None = None) -> None:
        """Drop the waiting items and wake both sides. The consumer gets the channel's first error, or `Cancelled`.

        A call without an `error` means that the consumer has left. It drops an earlier error, which nobody will read.
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
        """Raise the error of the cancellation, or `Cancelled`, if the channel was cancelled; else do nothing.

        A consumer that works on one item for a long time calls this to notice a cancellation.
        """
        if self._cancelled:
            raise self._error or Cancelled("the channel was cancelled")

    # For threads.

    def put(self, item: T, size: int, wait: Wait = threading.Event.wait) -> None:
        """Wait for room, and add one item of `size` bytes. Raise `Cancelled` if the channel was cancelled.

        The result of `wait` is ignored: to give up, it must raise.
        """
        room = threading.Event()
        while not self.has_room(room.set):
            wait(room)
            room.clear()
        self.add(item, size)

    def take(self, wait: Wait = threading.Event.wait) -> deque[T] | None:
        """Wait for items and return all of them; an empty deque at the end. Return None if `wait` gives up.

        Raise the error that the channel ended with, or `Cancelled`.
        """
        came = threading.Event()
        while (items := self.poll(came.set)) is None:
            if not wait(came):
                return None
            came.clear()
        return items

    def takes(self, look: Callable[[], object], seconds: float) -> Iterator[deque[T]]:
        """Yield all items that wait, as `take` does, until the end.

        While it waits, it calls `look` every `seconds`; `look` may raise.

        Raise the error that the channel ended with, or `Cancelled`. A step that need not wait calls no function
        (decision 0061).
        """
        came = threading.Lock()
        came.acquire()
        while True:
            with self._lock:
                if self._cancelled:
                    raise self._error or Cancelled("the channel was cancelled")
                items, self._waiting, self._bytes = self._waiting, deque(), 0
                producers, self._producers = self._producers, []
                ended = self._ended
                if not items and not ended:
                    self._consumer = came.release
            for wake in producers:
                try:
                    wake()
                except RuntimeError:  # as in `_wake`, which is not used here because it would be a call
                    pass
            if items:
                yield items
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
        if not self._taken:
            self._taken = self.take() or deque()
        if not self._taken:
            raise StopIteration
        return self._taken.popleft()

    def close(self) -> None:
        """Cancel the channel: the consumer has left."""
        self.cancel()

    # For coroutines.

    async def aput(self, item: T, size: int) -> None:
        """Wait for room, and add one item of `size` bytes. Raise `Cancelled` if the channel was cancelled."""
        await self.room()
        self.add(item, size)

    async def room(self) -> None:
        """Wait until there is room for an item. Raise `Cancelled` if the channel was cancelled."""
        room, wake = loop_event()
        while not self.has_room(wake):
            await room.wait()
            room.clear()

    async def atake(self) -> deque[T]:
        """Wait for items and return all of them; an empty deque at the end.

        Raise the error that the channel ended with, or `Cancelled`.
        """
        came, wake = loop_event()
        while (items := self.poll(wake)) is None:
            await came.wait()
            came.clear()
        return items

    async def __anext__(self) -> T:
        if time.monotonic() - self._turn_began >= TURN_SECONDS:
            await asyncio.sleep(0)
            self._turn_began = time.monotonic()
        self.check()
        if not self._taken:
            self._taken = await self.atake()
        if not self._taken:
            raise StopAsyncIteration
        return self._taken.popleft()

    async def aclose(self) -> None:
        """Cancel the channel: the consumer has left."""
        self.cancel()

    def _check_wanted(self) -> None:
        """Raise `Cancelled` if the channel was cancelled. The caller holds `_lock`."""
        if self._cancelled:
            raise Cancelled("the reader takes no more items")

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
        with contextlib.suppress(RuntimeError):  # the loop of the waiting side is closed, so nothing waits
            wake()


def runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether the caller runs on `loop`."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def loop_event(*, direct: bool = False) -> tuple[asyncio.Event, Wake]:
    """Return an event of the running loop, and a function that sets it from any thread.

    With `direct`, the loop itself sets it at once: a task that waits for it then runs one turn of the loop sooner. The
    function raises `RuntimeError` if the loop is closed.
    """
    event, loop = asyncio.Event(), asyncio.get_running_loop()
    if not direct:  # no Python function (decision 0061)
        return event, partial(loop.call_soon_threadsafe, event.set)

    def wake() -> None:
        if runs_here(loop):
            event.set()
        else:
            loop.call_soon_threadsafe(event.set)

    return event, wake
