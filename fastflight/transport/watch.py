"""A descriptor's readiness on whichever event loop runs, for a port that is read by calls which do not wait.

`read` takes what is there, and waits for more only when nothing is. The watch for bytes stays with the loop from one
wait to the next: two calls of the system are saved for each answer of a device. Bytes that come while nobody waits are
left where they are, and end the watch until the next wait, so a loop is woken by them once. When a wait ends, the bytes
are taken at once; a reader that is cancelled just then leaves them in the watch, and whoever reads next, from a thread
too, begins with `left`. `pour` has no reader to be woken: what comes is given away as soon as it is taken.

Nobody waits before the descriptor had nothing left to take. libuv tells of an error once, in one event with the bytes
before it, and watches no more: who waits with bytes still there, as of a peer that reset behind them, waits for ever.

One task may read while another waits for `room`. `end` comes before the descriptor is closed, from whatever thread: a
loop that still watched it could not watch its next one with the same number.

Needs a loop that watches descriptors: any but Windows' proactor loop.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable

from fastflight.transport.alarm import Alarm

# So many reads in a row find something without a turn of the loop: then the loop's other tasks have theirs.
TURN_READS = 16
# Who gives away what comes waits for as long as it takes: a timer that fires once an hour.
QUIET_SECONDS = 3600.0
# A loop that does not come around in this time is stuck: nobody waits longer for it.
END_SECONDS = 2.0


class Watch:
    """Waits for `descriptor`. `take` reads it without waiting, and raises `BlockingIOError` when nothing is there."""

    def __init__(self, descriptor: int, take: Callable[[], bytes]) -> None:
        self._descriptor = descriptor
        self._take = take
        self._left: bytes | Exception | None = None
        self._give: Callable[[bytes], object] | None = None
        self._reads = 0
        self._stay: _Stay | None = None

    def left(self) -> bytes | None:
        """What was taken for a reader that is gone, once. Raises what reading raised for it."""
        left, self._left = self._left, None
        if isinstance(left, Exception):
            raise left
        return left

    async def read(self, timeout: float) -> bytes:
        """What `take` gives, and raises; `TimeoutError` when that is nothing for `timeout` seconds."""
        self._reads += 1
        while True:
            if self._left is not None and (data := self.left()) is not None:
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
            await self._here().readable(timeout)

    async def pour(self, give: Callable[[bytes], object]) -> bool:
        """Have `give` called on the loop with all that `take` gives: what was taken was given.

        Returns false soon after `give` returned true, and true when `take` gives no bytes; raises what it raises.
        """
        self._give = give
        try:
            while True:
                try:
                    data = await self.read(QUIET_SECONDS)
                except TimeoutError as error:
                    if ran_out(error):
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
        await self._here().writable(timeout)

    def end(self) -> None:
        """Leave the loop: nothing of it touches the descriptor after this. Those that wait are woken, and find out."""
        stay, self._stay = self._stay, None
        if stay is not None:
            carry_out(stay.home, stay.leave)

    def _here(self) -> _Stay:
        loop = asyncio.get_running_loop()
        if self._stay is None or self._stay.home is not loop:
            self.end()
            self._stay = _Stay(loop, self._descriptor, self._came)
        return self._stay

    def _came(self) -> bool:
        """Take it, for the reader that is about to be woken. False when there is nothing for it to do."""
        for _ in range(TURN_READS):
            try:
                data = self._take()
            except (BlockingIOError, InterruptedError):
                return False
            except OSError as error:
                self._left = error
                return True
            if self._give is None or not data:
                self._left = data
                return True
            try:
                full = self._give(data)
            except Exception as error:  # the loop's edge: the reader is told
                self._left = error
                return True
            if full:
                break
        return True


class _Stay:
    """What a watch has on one loop, used there only. `came` takes the bytes; false when nobody need be woken."""

    def __init__(self, loop: asyncio.AbstractEventLoop, descriptor: int, came: Callable[[], bool]) -> None:
        self.home = loop
        self._descriptor = descriptor
        self._came = came
        self._watching = False
        # Their results say whether time is up. Never an exception: a cancelled task would leave that unseen.
        self._reader: asyncio.Future[bool] | None = None
        self._writer: asyncio.Future[bool] | None = None
        self._limit = Alarm(loop, self._expire)

    async def readable(self, timeout: float) -> None:
        """Return when `came` was true, or after `leave`."""
        reader = self._reader = self.home.create_future()
        if not self._watching:
            self.home.add_reader(self._descriptor, self._read_ready)
            self._watching = True
        self._limit.set(timeout)
        try:
            if await reader:
                raise TimeoutError
        finally:
            # A reader that comes before a cancelled one is gone has set these for itself.
            if self._reader is reader:
                self._reader = None
                self._limit.clear()

    async def writable(self, timeout: float) -> None:
        """Return when there is room, or after `leave`. A line without pace seldom makes anybody wait for it."""
        writer = self._writer = self.home.create_future()
        timer = self.home.call_later(timeout, _settle, writer, True)
        self.home.add_writer(self._descriptor, self._write_ready)
        try:
            if await writer:
                raise TimeoutError
        finally:
            timer.cancel()
            if self._writer is writer:
                self._stop_writing()

    def leave(self) -> None:
        """Give up the descriptor, and wake those that wait."""
        # A loop that is closed watches nothing, and cannot be told.
        if self.home.is_closed():
            return
        self._stop_reading()
        self._limit.cancel()
        reader, writer = self._reader, self._writer
        self._stop_writing()
        for waiter in (reader, writer):
            if waiter is not None:
                _settle(waiter, False)

    def _read_ready(self) -> None:
        if self._reader is None or self._reader.done():
            self._stop_reading()
        elif self._came():
            self._reader.set_result(False)

    def _write_ready(self) -> None:
        writer = self._writer
        self._stop_writing()
        if writer is not None:
            _settle(writer, False)

    def _stop_reading(self) -> None:
        if self._watching:
            self._watching = False
            self.home.remove_reader(self._descriptor)

    def _stop_writing(self) -> None:
        if self._writer is not None:
            self._writer = None
            self.home.remove_writer(self._descriptor)

    def _expire(self) -> None:
        if self._reader is not None:
            _settle(self._reader, True)


def ran_out(error: OSError) -> bool:
    """Whether the time to wait ran out, or there was none: the line may be well.

    The system has an error of the same class, for a connection that is lost because its peer does not answer any more.
    """
    return isinstance(error, TimeoutError | BlockingIOError) and error.errno != errno.ETIMEDOUT


def carry_out(loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> None:
    """Do `act` on `loop`, from whatever thread, and return when it is done; here and now if `loop` does not run."""
    if loop.is_closed() or not loop.is_running() or runs_here(loop):
        act()
        return
    done = threading.Event()

    def act_there() -> None:
        act()
        done.set()

    try:
        loop.call_soon_threadsafe(act_there)
    except RuntimeError:  # It was closed meanwhile, and its watches with it.
        return
    done.wait(END_SECONDS)


def _settle(waiter: asyncio.Future[bool], expired: bool) -> None:
    if not waiter.done():
        waiter.set_result(expired)


def runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether the caller is on `loop`."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
