"""The last bytes of a line as numbered chunks, and readers that follow them.

A `ChunkBuffer` keeps one `Chunk` for each read and write of the line, numbered from 0 without holes. Its readers share
the chunks: each has only a place in the sequence, so a slow reader delays nobody and costs no memory. Chunks that the
buffer dropped before a reader took them become one `Gap` with their exact numbers.

Thread-safe: a line is used from threads and from loops, and its readers run on others.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from itertools import islice
from typing import Literal, NamedTuple

from fastflight.concurrency.loops import runs_here

Direction = Literal["rx", "tx"]

# What a buffer keeps: over 20 s of a line at 115200 baud, and 256 MB for a thousand boards that never stop talking.
KEPT_BYTES = 256 * 1024
# What a chunk costs beside its data. Without it, a flood of single bytes would take a hundred times the limit.
CHUNK_BYTES = 256
# A recorder's untaken chunks are kept up to so many times the limit: two reads of a fast line are twice as much.
UNTAKEN_TIMES = 4
# A line that can wait is read on when its recorder has less than this to take, or has taken nothing for so many
# seconds: then the disk does not answer, and readers that look at the line live do not wait for it.
UNTAKEN_BYTES = KEPT_BYTES // 2
PACE_SECONDS = 10.0
# A reader takes this many chunks at once: few enough that taking them does not keep the line's owner waiting.
LOT_CHUNKS = 256


class Chunk(NamedTuple):
    """One read (`rx`, from the device) or write (`tx`). `time_ns` is UTC, in nanoseconds since 1970.

    `cut`: why it does not continue the chunk before; empty if it does. `request`: it is the traffic of a request.
    `waited`: it had waited in the port when the line was opened, so nobody knows when the device sent it: `time_ns` is
    when it was read.
    """

    seq: int
    time_ns: int
    direction: Direction
    data: bytes
    cut: str = ""
    request: bool = False
    waited: bool = False


class Gap(NamedTuple):
    """Chunks that are missing: `first` to `last`, both included. In a tap, they were dropped before they were taken.

    In a recording, `reason` says why, and `where` names the place of damage.
    """

    first: int
    last: int
    reason: str = ""
    where: str = ""

    def told(self) -> dict[str, int | str]:
        """What is known of it, for a message."""
        return {key: value for key, value in self._asdict().items() if value != ""}


class ChunkBuffer:
    """Keeps the newest chunks, `kept_bytes` of them. A subclass adds them, with `_append`, and makes the readers."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._limit = kept_bytes
        self._lock = threading.Lock()
        self._chunks: deque[Chunk] = deque()
        self._bytes = 0
        self._next = 0
        # The size of all chunks ever appended, and the callbacks that wait for it to reach a mark.
        self._fed = 0
        self._marks: list[tuple[int, Callable[[], object]]] = []
        self._dropped = False
        self._closed = False
        # Chunks that a reader did not take in time.
        self.missed = 0
        # The reader that records, and the reads of the line that wait for it; whether waiting for it timed out.
        self._recorder: TapReader | None = None
        self._paused: list[Callable[[], object]] = []
        self._stalled = False
        # Callbacks of readers that wait; each is called once.
        self._waiting: list[Callable[[], object]] = []

    @property
    def next_seq(self) -> int:
        """The number that the next chunk will have."""
        return self._next

    def begin_at(self, seq: int) -> None:
        """Number from here on. Before the first chunk: its readers see no jump."""
        with self._lock:
            assert not self._chunks and seq >= self._next
            self._next = seq

    def _append(self, chunk: Chunk) -> list[Callable[[], object]]:
        """Add the chunk with the next number. `_lock` is held; call what this returns without it."""
        self._chunks.append(chunk)
        self._next += 1
        size = len(chunk.data) + CHUNK_BYTES
        self._bytes += size
        self._fed += size
        limit = self._limit
        if self._recorder is not None:
            limit = min(max(limit, self._fed - self._recorder.place), UNTAKEN_TIMES * limit)
        # The newest stays, however large.
        while self._bytes > limit and len(self._chunks) > 1:
            self._bytes -= len(self._chunks.popleft().data) + CHUNK_BYTES
            self._dropped = True
        if not self._waiting and not self._marks:
            return []
        waiting, self._waiting = self._waiting, []
        if self._marks:
            waiting += [wake for mark, wake in self._marks if mark <= self._fed]
            self._marks = [each for each in self._marks if each[0] > self._fed]
        return waiting

    def _reader_from(self, start: int, begins_line: bool) -> TapReader:
        """A reader that takes chunk `start` first. `_lock` is held."""
        unread = islice(self._chunks, max(0, start - self._next + len(self._chunks)), None)
        taken = self._fed - sum(len(chunk.data) + CHUNK_BYTES for chunk in unread)
        return TapReader(self, start, begins_line, taken)

    def record_by(self, recorder: TapReader | None) -> None:
        """Keep more for `recorder` than for others, and have lines that can wait read no faster than it takes."""
        with self._lock:
            self._recorder = recorder
        self._resume()

    @property
    def is_ahead(self) -> bool:
        """Whether the recorder must take something before a line that can wait is read on."""
        recorder = self._recorder
        return recorder is not None and not self._stalled and self._fed - recorder.place >= UNTAKEN_BYTES

    def pace(self) -> None:
        """Wait while the line is ahead of its recorder. Call it before reading a line that can wait."""
        if not self.is_ahead:
            return
        taken = threading.Event()
        if self._pause(taken.set) and not taken.wait(PACE_SECONDS):
            self._stalled = True

    async def apace(self) -> None:
        """As `pace`."""
        if not self.is_ahead:
            return
        loop = asyncio.get_running_loop()
        taken: asyncio.Future[None] = loop.create_future()
        if self._pause(partial(_settle_on, loop, taken)):
            try:
                async with asyncio.timeout(PACE_SECONDS):
                    await taken
            except TimeoutError:
                self._stalled = True

    def _pause(self, resume: Callable[[], object]) -> bool:
        with self._lock:
            if self._closed or not self.is_ahead:
                return False
            self._paused.append(resume)
            return True

    def _resume(self) -> None:
        """Let the line be read on: the recorder has taken what was there, or there is none."""
        with self._lock:
            self._stalled = False
            paused, self._paused = self._paused, []
        wake_all(paused)

    def close(self) -> None:
        """The line is over: readers take what is kept, and then end."""
        with self._lock:
            self._closed = True
            waiting = self._all_waiting() + self._paused
        wake_all(waiting)

    def _take(self, start: int, wake: Callable[[], object] | None) -> tuple[list[Chunk | Gap], int, bool]:
        """From number `start`: a lot of chunks, where to go on, whether that is the end. If none: `wake` later."""
        with self._lock:
            items: list[Chunk | Gap] = []
            kept = self._next - len(self._chunks)
            if start < kept:
                items.append(Gap(start, kept - 1))
                self.missed += kept - start
                start = kept
            items += islice(self._chunks, start - kept, start - kept + LOT_CHUNKS)
            start = min(start + LOT_CHUNKS, self._next)
            if not items and not self._closed and wake is not None:
                self._waiting.append(wake)
            return items, start, self._closed and start == self._next

    def _forget(self, wake: Callable[[], object]) -> None:
        with self._lock, contextlib.suppress(ValueError):
            self._waiting.remove(wake)

    def _all_waiting(self) -> list[Callable[[], object]]:
        waiting = self._waiting + [wake for _, wake in self._marks]
        self._waiting, self._marks = [], []
        return waiting

    def _mark(self, mark: int, wake: Callable[[], object]) -> bool:
        """Have `wake` called once so much was fed; False where it is already, or never will be."""
        with self._lock:
            if self._fed >= mark or self._closed:
                return False
            self._marks.append((mark, wake))
            return True

    def _unmark(self, wake: Callable[[], object]) -> None:
        with self._lock:
            self._marks = [each for each in self._marks if each[1] is not wake]


class TapReader:
    """A place in a tap. Belongs to one thread or one task at a time; there is nothing to close.

    `begins_line`: the first bytes of the device are known to begin a line.
    """

    def __init__(self, tap: ChunkBuffer, start: int, begins_line: bool = False, taken: int = 0) -> None:
        self._tap = tap
        self._next = start
        # The size of the chunks that it has taken, or will never take.
        self.place = taken
        self.begins_line = begins_line
        self.ended = False

    @property
    def next_seq(self) -> int:
        """The number of the chunk that it takes next."""
        return self._next

    def take(self, timeout: float | None) -> list[Chunk | Gap]:
        """What came, in order; waits up to `timeout` seconds (None: for ever) while there is nothing.

        Empty after the timeout, after a `Tap.nudge`, or when the tap was closed: then `ended` is true.
        """
        came = threading.Event()
        if not (items := self._taken(came.set)) and not self.ended:
            try:
                came.wait(timeout)
            finally:
                self._tap._forget(came.set)
            items = self._taken(None)
        return items

    async def atake(self, timeout: float | None) -> list[Chunk | Gap]:
        """As `take`. Cancelled, it has taken nothing."""
        loop = asyncio.get_running_loop()
        came: asyncio.Future[None] = loop.create_future()
        wake = partial(_settle_on, loop, came)
        if not (items := self._taken(wake)) and not self.ended:
            timer = None if timeout is None else loop.call_later(timeout, _settle, came)
            try:
                await came
            finally:
                if timer is not None:
                    timer.cancel()
                self._tap._forget(wake)
            items = self._taken(None)
        return items

    async def agather(self, timeout: float | None, seconds: float, size: int) -> list[Chunk | Gap]:
        """All that is there `seconds` after the first chunk came, or as soon as `size` bytes of the tap are there.

        It wakes the reader seldom instead of at once. A nudge ends it early, and the result may be empty as `take`'s.
        """
        await self._afed(1, timeout)
        if not self._tap._closed and self._tap._fed > self.place:
            await self._afed(size, seconds)
        return self.rest()

    def rest(self) -> list[Chunk | Gap]:
        """All that is there now, without waiting."""
        items: list[Chunk | Gap] = []
        # In this order: a chunk that is fed meanwhile may be taken and not counted, which costs one look too many.
        self.place = self._tap._fed
        end = self._tap.next_seq
        while self._next < end and not self.ended:
            items += self._taken(None)
        if not items:
            self._taken(None)  # to see whether it has ended
        if self._tap._recorder is self:
            self._tap._resume()
        return items

    async def _afed(self, size: int, timeout: float | None) -> None:
        """Wait until so much is there that was not taken, for a nudge, or for `timeout` seconds."""
        came, loop, thread = asyncio.Event(), asyncio.get_running_loop(), threading.get_ident()

        def wake() -> None:
            # On the loop itself, where the line is read: a turn sooner, which is a read more that is taken in time.
            came.set() if threading.get_ident() == thread else loop.call_soon_threadsafe(came.set)

        if not self._tap._mark(self.place + size, wake):
            return
        try:
            async with asyncio.timeout(timeout):
                await came.wait()
        except TimeoutError:
            pass
        finally:
            self._tap._unmark(wake)

    def __iter__(self) -> Iterator[Chunk | Gap]:
        while not self.ended:
            yield from self.take(None)

    async def __aiter__(self) -> AsyncIterator[Chunk | Gap]:
        while not self.ended:
            for item in await self.atake(None):
                yield item

    def _taken(self, wake: Callable[[], object] | None) -> list[Chunk | Gap]:
        items, self._next, self.ended = self._tap._take(self._next, wake)
        return items


def _settle_on(loop: asyncio.AbstractEventLoop, came: asyncio.Future[None]) -> None:
    """Settle `came` from any thread. On the loop itself, where lines are read, no wake-up is needed."""
    if runs_here(loop):
        _settle(came)
    else:
        loop.call_soon_threadsafe(_settle, came)


def _settle(came: asyncio.Future[None]) -> None:
    if not came.done():
        came.set_result(None)


def wake_all(waiting: list[Callable[[], object]]) -> None:
    """Call each. One whose loop is closed has nobody left to wake."""
    for wake in waiting:
        with contextlib.suppress(RuntimeError):
            wake()
