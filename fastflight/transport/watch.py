"""Waits until a descriptor is readable or writable, on an event loop or in a thread, for all ports on descriptors.

The owner of a descriptor (a socket, a terminal, a serial port) passes its `Watch` a function `take` that reads without
waiting. The watch calls it first, and waits only if it raises `BlockingIOError`.

On a loop, the watch stays registered for reading from one wait to the next, which saves two system calls for each
answer of a device. Bytes that arrive while nobody reads stay in the system and end the registration, so they wake the
loop once. When a wait ends, the watch takes the bytes at once. If the reader is cancelled at that moment, the watch
keeps the bytes for the next reader. `pour` passes bytes to a callback without waking a task.

The watch always reads until nothing is left before it waits: libuv reports an error of the descriptor only once, in one
event with the bytes before it. A reader that waits with bytes still unread would miss the error and wait for ever.

One task may read while others wait in `room`. Call `end` or `close` before the descriptor is closed, from any thread:
a loop that still watches a closed descriptor cannot watch the next one with the same number.

The loop must be able to watch descriptors, which the proactor loop of Windows cannot.
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
import threading
from collections.abc import Callable

from fastflight.concurrency.loops import run_on_loop

# After this many reads in a row that did not wait, the loop's other tasks get a turn.
TURN_READS = 16
# The timeout of a wait in `pour`, which has no deadline: it wakes the loop once an hour.
QUIET_SECONDS = 3600.0


class Watch:
    """Waits for `descriptor`. `take` reads it without waiting, and raises `BlockingIOError` if there is nothing.

    With `for_threads`, threads can wait as well, in `read_blocking` and `wait_blocking`. This takes two more
    descriptors, until `close`. `extra` returns further descriptors: a wait times out early when one of them becomes
    readable.
    """

    def __init__(
        self,
        descriptor: int,
        take: Callable[[], bytes],
        *,
        for_threads: bool = False,
        extra: Callable[[], tuple[int, ...]] = tuple,
    ) -> None:
        self._descriptor = descriptor
        self._take = take
        self._extra = extra
        self._unread: bytes | Exception | None = None
        self._give: Callable[[bytes], object] | None = None
        self._reads = 0
        self._here: _LoopWatch | None = None
        # Guards the change to another loop against `close` in another thread.
        self._lock = threading.Lock()
        self._is_closed = False
        # A pipe that is readable after `close`, which wakes the waiting threads.
        self._wake = os.pipe() if for_threads else None

    @property
    def is_read(self) -> bool:
        """Whether a task waits for bytes now."""
        return self._here is not None and self._here.is_read

    def unread(self) -> bytes | None:
        """Return the bytes taken for a reader that was cancelled, once, or None. Raise what `take` raised for it."""
        unread, self._unread = self._unread, None
        if isinstance(unread, Exception):
            raise unread
        return unread

    async def read(self, timeout: float) -> bytes:
        """Return or raise what `take` does. `TimeoutError` if nothing arrives for `timeout` seconds."""
        self._reads += 1
        while True:
            if self._unread is not None and (data := self.unread()) is not None:
                return data
            if self._reads > TURN_READS:
                self._reads = 0
                await asyncio.sleep(0)
                continue
            try:
                return self._take()
            except (BlockingIOError, InterruptedError):
                pass
            self._reads = 0
            await self._on_this_loop().readable(timeout)

    async def pour(self, give: Callable[[bytes], object]) -> bool:
        """Call `give` on the loop with all bytes that `take` returns. No taken byte is lost.

        Return false soon after `give` returns true, which asks for a pause. Return true when `take` returns no bytes:
        the stream has ended. Raise what `take` and `give` raise.
        """
        self._give = give
        try:
            while True:
                try:
                    data = await self.read(QUIET_SECONDS)
                except TimeoutError as error:
                    if is_timeout(error):
                        continue
                    raise
                if not data:
                    return True
                if give(data):
                    return False
        finally:
            self._give = None

    async def room(self, timeout: float) -> None:
        """Return when the descriptor may be writable. `TimeoutError` after `timeout` seconds."""
        await self._on_this_loop().writable(timeout)

    def call_with_room(self, act: Callable[[], None]) -> None:
        """Call `act` on the running loop as soon as the descriptor may be writable. `end` cancels this."""
        self._on_this_loop().call_with_room(act)

    def call_later(self, seconds: float, act: Callable[[], None]) -> None:
        """Call `act` on the running loop after `seconds`, unless such a call is due already. `end` cancels this."""
        self._on_this_loop().call_later(seconds, act)

    def read_blocking(self, timeout: float) -> bytes:
        """As `read`, for a thread."""
        while True:
            try:
                unread = self.unread()
                return self._take() if unread is None else unread
            except (BlockingIOError, InterruptedError):
                self.wait_blocking(select.POLLIN, timeout)

    def wait_blocking(self, event: int, timeout: float) -> None:
        """Wait in a thread for `event`, one of `select.poll`'s, or for `close`. `TimeoutError` after `timeout` seconds.

        This does not use `select.select`, which refuses descriptors from 1024 on.
        """
        assert self._wake is not None
        extra = self._extra()
        poll = select.poll()
        poll.register(self._descriptor, event)
        for each in (self._wake[0], *extra):
            poll.register(each, select.POLLIN)
        if not {descriptor for descriptor, _ in poll.poll(timeout * 1000)}.difference(extra):
            raise TimeoutError

    def end(self) -> None:
        """Stop watching on the loop: no callback uses the descriptor any more. Waiting tasks wake up and try again."""
        here, self._here = self._here, None
        if here is not None:
            run_on_loop(here.loop, here.leave)

    def close(self) -> None:
        """As `end`, for good, and wake the waiting threads. Call it once. From now on `take` must raise."""
        with self._lock:
            self._is_closed = True
        if self._wake is not None:
            os.write(self._wake[1], b"x")
        self.end()
        if self._wake is not None:
            for each in self._wake:
                os.close(each)

    def _on_this_loop(self) -> _LoopWatch:
        loop = asyncio.get_running_loop()
        if self._here is None or self._here.loop is not loop:
            self.end()
            with self._lock:
                if self._is_closed:
                    raise OSError(errno.EBADF, "closed")
                self._here = _LoopWatch(loop, self._descriptor, self._take_for_reader, self._extra)
        return self._here

    def _take_for_reader(self) -> bool:
        """Take the bytes that are there. Return whether the reader must be woken for them."""
        for _ in range(TURN_READS):
            try:
                data = self._take()
            except (BlockingIOError, InterruptedError):
                return False
            except OSError as error:
                self._unread = error
                return True
            if self._give is None or not data:
                self._unread = data
                return True
            try:
                full = self._give(data)
            except Exception as error:  # the edge of the loop: the reader raises it
                self._unread = error
                return True
            if full:
                break
        return True


class _LoopWatch:
    """The registrations of a watch on one loop. All methods but the constructor run on that loop.

    `take` takes the bytes that have arrived, and returns false if the reader need not be woken for them. `extra` is
    that of `Watch`.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        descriptor: int,
        take: Callable[[], bool],
        extra: Callable[[], tuple[int, ...]],
    ) -> None:
        self.loop = loop
        self._descriptor = descriptor
        self._take = take
        self._extra = extra
        self._watching = False
        self._extra_watched: set[int] = set()
        # The waits that began while there were extra descriptors.
        self._extra_waiting: set[asyncio.Future[bool]] = set()
        # The result of these futures is whether the time is up. asyncio would report an exception that a cancelled task
        # does not retrieve.
        self._reader: asyncio.Future[bool] | None = None
        self._writers: set[asyncio.Future[bool]] = set()
        self._act_with_room: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_read(self) -> bool:
        return self._reader is not None

    async def readable(self, timeout: float) -> None:
        """Return after `take` has returned true, or after `leave`. `TimeoutError` after `timeout` seconds."""
        reader = self._reader = self.loop.create_future()
        if not self._watching:
            self.loop.add_reader(self._descriptor, self._read_ready)
            self._watching = True
        self._watch_extra(reader)
        timer = self.loop.call_later(timeout, _settle, reader, True)
        try:
            if await reader:
                raise TimeoutError
        finally:
            timer.cancel()
            self._extra_waiting.discard(reader)
            # If this reader was cancelled, the next one may already have begun.
            if self._reader is reader:
                self._reader = None

    async def writable(self, timeout: float) -> None:
        """Return when the descriptor is writable, or after `leave`. `TimeoutError` after `timeout` seconds."""
        writer = self.loop.create_future()
        timer = self.loop.call_later(timeout, _settle, writer, True)
        self._watch_room()
        self._writers.add(writer)
        self._watch_extra(writer)
        try:
            if await writer:
                raise TimeoutError
        finally:
            timer.cancel()
            self._extra_waiting.discard(writer)
            if writer in self._writers:
                self._writers.remove(writer)
                self._unwatch_room()

    def call_with_room(self, act: Callable[[], None]) -> None:
        self._watch_room()
        self._act_with_room = act

    def call_later(self, seconds: float, act: Callable[[], None]) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(seconds, self._call_timed, act)

    def leave(self) -> None:
        """Remove everything from the loop, and wake the waiting tasks."""
        # A closed loop watches nothing and accepts no calls.
        if self.loop.is_closed():
            return
        self._stop_reading()
        for each in self._extra_watched:
            self.loop.remove_reader(each)
        self._act_with_room = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._reader is not None:
            _settle(self._reader, False)
        self._wake_writers()

    def _read_ready(self) -> None:
        if self._reader is None or self._reader.done():
            self._stop_reading()
        elif self._take():
            self._reader.set_result(False)

    def _write_ready(self) -> None:
        act, self._act_with_room = self._act_with_room, None
        self._wake_writers()
        if act is not None:
            act()

    def _extra_ready(self, descriptor: int) -> None:
        self._extra_watched.remove(descriptor)
        self.loop.remove_reader(descriptor)
        for waiter in self._extra_waiting:
            _settle(waiter, True)

    def _call_timed(self, act: Callable[[], None]) -> None:
        self._timer = None
        act()

    def _stop_reading(self) -> None:
        if self._watching:
            self._watching = False
            self.loop.remove_reader(self._descriptor)

    def _watch_extra(self, waiter: asyncio.Future[bool]) -> None:
        for each in self._extra():
            self._extra_waiting.add(waiter)
            if each not in self._extra_watched:
                self._extra_watched.add(each)
                self.loop.add_reader(each, self._extra_ready, each)

    def _watch_room(self) -> None:
        if not self._writers and self._act_with_room is None:
            self.loop.add_writer(self._descriptor, self._write_ready)

    def _unwatch_room(self) -> None:
        if not self._writers and self._act_with_room is None:
            self.loop.remove_writer(self._descriptor)

    def _wake_writers(self) -> None:
        writers, self._writers = self._writers, set()
        self._unwatch_room()
        for writer in writers:
            _settle(writer, False)


def is_timeout(error: OSError) -> bool:
    """Return whether `error` only means that a wait ran out of time, or that a call was not to wait.

    `TimeoutError` alone does not tell: the system reports a lost connection whose peer does not answer with the same
    class, but with `ETIMEDOUT`.
    """
    return isinstance(error, TimeoutError | BlockingIOError) and error.errno != errno.ETIMEDOUT


def _settle(waiter: asyncio.Future[bool], expired: bool) -> None:
    if not waiter.done():
        waiter.set_result(expired)
