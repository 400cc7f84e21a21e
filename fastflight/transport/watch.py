"""How bytes wait: the one place that waits for a descriptor, on any event loop or in a thread.

The owner of a descriptor (a socket, a terminal, a serial port) gives its `Watch` a function that reads what is there
without waiting. The watch calls it first and waits only when nothing is there.

On a loop, the registration for bytes stays from one wait to the next, which saves two system calls for each answer of
a device. Bytes that arrive while nobody reads stay in the system and end the registration, so they wake the loop once.
When a wait ends, the watch takes the bytes at once. If the reader is cancelled just then, the watch keeps them, and the
next reader gets them first. `pour` hands on what it takes without waking a reader.

The watch always reads until nothing is left before it waits: libuv reports an error of the descriptor once, in one
event with the bytes before it, and a reader that waits with bytes still unread would miss the error and wait for ever.

One task may read while others wait for `room`. Call `end` or `close` before the descriptor is closed, from any thread:
a loop that still watches a closed descriptor cannot watch the next one with the same number.

Loops must be able to watch descriptors, which the proactor loop of Windows cannot.
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
import threading
from collections.abc import Callable

from fastflight.concurrency.loops import run_on_loop

# So many reads in a row may succeed without a turn of the loop; then the other tasks run.
TURN_READS = 16
# `pour` waits without a deadline: its timer fires once an hour.
QUIET_SECONDS = 3600.0


class Watch:
    """Waits for `descriptor`. `take` reads it without waiting, and raises `BlockingIOError` when nothing is there.

    With `for_threads`, threads can wait as well, in `read_blocking` and `wait_blocking`. That takes two descriptors,
    which `close` gives back. `also` gives more descriptors: a wait times out early when one of them becomes readable.
    """

    def __init__(
        self,
        descriptor: int,
        take: Callable[[], bytes],
        *,
        for_threads: bool = False,
        also: Callable[[], tuple[int, ...]] = tuple,
    ) -> None:
        self._descriptor = descriptor
        self._take = take
        self._also = also
        self._unread: bytes | Exception | None = None
        self._give: Callable[[bytes], object] | None = None
        self._reads = 0
        self._here: _LoopWatch | None = None
        # Guards the step from one loop to the next against `close` in another thread.
        self._lock = threading.Lock()
        self._is_closed = False
        # Readable once `close` was called: wakes the threads that wait.
        self._wake = os.pipe() if for_threads else None

    @property
    def is_read(self) -> bool:
        """Whether a task waits for bytes now."""
        return self._here is not None and self._here.is_read

    def unread(self) -> bytes | None:
        """The bytes taken for a reader that was cancelled, or None. Raises what `take` raised for it."""
        unread, self._unread = self._unread, None
        if isinstance(unread, Exception):
            raise unread
        return unread

    async def read(self, timeout: float) -> bytes:
        """What `take` returns or raises; `TimeoutError` when nothing arrives for `timeout` seconds."""
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
        """Call `give` on the loop with all that `take` returns; whatever was taken was given.

        Returns false soon after `give` returned true, and true when `take` returns no bytes. Raises what they raise.
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
        """Return when the descriptor may be writable; `TimeoutError` after `timeout` seconds."""
        await self._on_this_loop().writable(timeout)

    def call_with_room(self, act: Callable[[], None]) -> None:
        """Call `act` on the running loop as soon as the descriptor may be writable. `end` takes this back."""
        self._on_this_loop().call_with_room(act)

    def call_later(self, seconds: float, act: Callable[[], None]) -> None:
        """Call `act` on the running loop within `seconds`; with the first of several calls. `end` takes this back."""
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
        """Wait in a thread for `event`, one of `select.poll`'s, or for `close`; `TimeoutError` after `timeout` seconds.

        `select.select` would refuse descriptors from 1024 on.
        """
        assert self._wake is not None
        also = self._also()
        poll = select.poll()
        poll.register(self._descriptor, event)
        for each in (self._wake[0], *also):
            poll.register(each, select.POLLIN)
        if not {descriptor for descriptor, _ in poll.poll(timeout * 1000)}.difference(also):
            raise TimeoutError

    def end(self) -> None:
        """Leave the loop: no callback touches the descriptor any more. Tasks that wait are woken, and look again."""
        here, self._here = self._here, None
        if here is not None:
            run_on_loop(here.loop, here.leave)

    def close(self) -> None:
        """As `end`, for good, and wake the threads that wait: call it once. `take` must raise from now on."""
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
                self._here = _LoopWatch(loop, self._descriptor, self._take_for_reader, self._also)
        return self._here

    def _take_for_reader(self) -> bool:
        """Take what is there for the reader that is about to be woken. False when it need not be."""
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
            except Exception as error:  # the loop's edge: the reader raises it
                self._unread = error
                return True
            if full:
                break
        return True


class _LoopWatch:
    """What a watch has registered on one loop. All but the constructor runs on that loop.

    `take` takes the bytes that have arrived, and returns false when the reader need not be woken for them. `also` is
    that of `Watch`.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        descriptor: int,
        take: Callable[[], bool],
        also: Callable[[], tuple[int, ...]],
    ) -> None:
        self.loop = loop
        self._descriptor = descriptor
        self._take = take
        self._also = also
        self._watching = False
        self._also_watched: set[int] = set()
        # The waits that began while `also` gave descriptors.
        self._also_waiting: set[asyncio.Future[bool]] = set()
        # The results of these futures say whether the time is up. An exception would stay unseen in a cancelled task.
        self._reader: asyncio.Future[bool] | None = None
        self._writers: set[asyncio.Future[bool]] = set()
        self._act_with_room: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_read(self) -> bool:
        return self._reader is not None

    async def readable(self, timeout: float) -> None:
        """Return when `take` returned true, or after `leave`."""
        reader = self._reader = self.loop.create_future()
        if not self._watching:
            self.loop.add_reader(self._descriptor, self._read_ready)
            self._watching = True
        self._watch_also(reader)
        timer = self.loop.call_later(timeout, _settle, reader, True)
        try:
            if await reader:
                raise TimeoutError
        finally:
            timer.cancel()
            self._also_waiting.discard(reader)
            # The next reader may have begun before this one, which was cancelled, comes here.
            if self._reader is reader:
                self._reader = None

    async def writable(self, timeout: float) -> None:
        """Return when there is room, or after `leave`."""
        writer = self.loop.create_future()
        timer = self.loop.call_later(timeout, _settle, writer, True)
        self._watch_room()
        self._writers.add(writer)
        self._watch_also(writer)
        try:
            if await writer:
                raise TimeoutError
        finally:
            timer.cancel()
            self._also_waiting.discard(writer)
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
        """Remove everything from the loop, and wake the tasks that wait."""
        # A closed loop watches nothing, and accepts no call.
        if self.loop.is_closed():
            return
        self._stop_reading()
        for each in self._also_watched:
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

    def _also_ready(self, descriptor: int) -> None:
        self._also_watched.remove(descriptor)
        self.loop.remove_reader(descriptor)
        for waiter in self._also_waiting:
            _settle(waiter, True)

    def _call_timed(self, act: Callable[[], None]) -> None:
        self._timer = None
        act()

    def _stop_reading(self) -> None:
        if self._watching:
            self._watching = False
            self.loop.remove_reader(self._descriptor)

    def _watch_also(self, waiter: asyncio.Future[bool]) -> None:
        for each in self._also():
            self._also_waiting.add(waiter)
            if each not in self._also_watched:
                self._also_watched.add(each)
                self.loop.add_reader(each, self._also_ready, each)

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
    """Whether a wait ran out of time, or was not to wait at all: the line may be well.

    The system reports a lost connection whose peer no longer answers with the same class of error.
    """
    return isinstance(error, TimeoutError | BlockingIOError) and error.errno != errno.ETIMEDOUT


def _settle(waiter: asyncio.Future[bool], expired: bool) -> None:
    if not waiter.done():
        waiter.set_result(expired)
