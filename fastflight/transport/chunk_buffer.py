"""Keeps the latest traffic of a line as numbered chunks, for any number of readers.

A `ChunkBuffer` keeps one `Chunk` for each read and write of the line, numbered from 0 without holes. Its readers share
the chunks. Each reader is only a position in the sequence, so a slow reader delays nobody and costs no memory. Chunks
that were dropped before a reader took them reach it as one `Gap` with their exact numbers.

Thread-safe: the line and each reader may run on different threads and event loops.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Literal, NamedTuple

from fastflight.concurrency.channel import loop_event, runs_here
from fastflight.gap import Gap

Direction = Literal["rx", "tx"]

# The size of a buffer: over 20 s of a line at 115200 baud, and 256 MB in all for a thousand boards that never pause.
KEPT_BYTES = 256 * 1024
# The overhead of a chunk, counted in addition to its data. Otherwise a flood of single bytes would take a hundred times
# the limit.
CHUNK_BYTES = 256
# Chunks that the recorder has not taken are kept up to this many times the limit, because two reads of a fast line
# alone are twice the limit.
UNTAKEN_TIMES = 4
# A line that can wait is not read while its recorder has this many bytes to take. If the recorder takes nothing for
# `PACE_SECONDS`, the disk does not answer, and the line is read on, so that live readers do not wait for the disk.
UNTAKEN_BYTES = KEPT_BYTES // 2
PACE_SECONDS = 10.0
# A reader takes at most this many chunks at once, so that it does not hold the lock for long.
MAX_CHUNKS = 256


class Chunk(NamedTuple):
    """One read (`rx`, from the device) or write (`tx`). `time_ns` is UTC, in nanoseconds since 1970.

    `cut`: why it does not continue the previous chunk; empty if it does. `request`: it is the traffic of a request.
    `waited`: it was already in the port when the line was opened, so it is not known when the device sent it, and
    `time_ns` is the time of the read. `unread`: between which times nothing read the line before it; the first is None
    if the line had not been opened before.
    """

    seq: int
    time_ns: int
    direction: Direction
    data: bytes
    cut: str = ""
    request: bool = False
    waited: bool = False
    unread: tuple[int | None, int] | None = None


class ChunkBuffer:
    """Keeps the newest chunks, up to `kept_bytes`. A subclass adds chunks with `_append`, and creates the readers."""

    def __init__(self, kept_bytes: int) -> None:
        self._limit = kept_bytes
        self._lock = threading.Lock()
        self._chunks: deque[Chunk] = deque()
        self._bytes = 0
        self._next = 0
        # The size of all chunks ever appended, and callbacks that wait for it to reach a value: each is called once.
        self._fed = 0
        self._waiting: dict[Callable[[], object], int] = {}
        # The least of these values.
        self._next_mark = math.inf
        self._dropped = False
        self._closed = False
        # How many chunks were dropped before a reader took them, in total over all readers that count them.
        self.missed = 0
        # The reader that records, and the reads of the line that wait for it; whether waiting for it timed out.
        self._recorder: TapReader | None = None
        self._paused: list[Callable[[], object]] = []
        self._stalled = False

    @property
    def next_seq(self) -> int:
        """The number of the next chunk."""
        self.collect()
        return self._next

    def collect(self) -> None:
        """Add the chunks that a subclass has held back. The caller does not hold `_lock`."""

    def begin_at(self, seq: int) -> None:
        """Set the number of the first chunk. Call it before there are chunks and readers."""
        with self._lock:
            assert not self._chunks and seq >= self._next
            self._next = seq

    def _append(self, chunks: Sequence[Chunk], size: int) -> list[Callable[[], object]]:
        """Add chunks with `size` bytes; the caller holds `_lock`.

        Return the callbacks that wake readers: call them without the lock.
        """
        self._chunks += chunks
        self._next += len(chunks)
        size += len(chunks) * CHUNK_BYTES
        self._bytes += size
        self._fed += size
        limit = self._limit
        if self._recorder is not None:
            limit = min(max(limit, self._fed - self._recorder.place), UNTAKEN_TIMES * limit)
        # Keep the newest chunk, however large.
        while self._bytes > limit and len(self._chunks) > 1:
            self._bytes -= len(self._chunks.popleft().data) + CHUNK_BYTES
            self._dropped = True
        if self._fed < self._next_mark:
            return []
        waiting = [wake for wake, mark in self._waiting.items() if mark <= self._fed]
        for wake in waiting:
            del self._waiting[wake]
        self._next_mark = min(self._waiting.values(), default=math.inf)
        return waiting

    def _wait_for(self, mark: int, wake: Callable[[], object]) -> None:
        """Have `wake` called when `_fed` reaches `mark`. The caller holds `_lock`."""
        self._waiting[wake] = mark
        self._next_mark = min(self._next_mark, mark)

    def _reader_from(self, start: int, begins_line: bool, counts_missed: bool) -> TapReader:
        """Return a reader that starts with chunk `start`. The caller holds `_lock`."""
        index = start - self._next + len(self._chunks)
        return TapReader(self, start, begins_line, self._fed_before(index), index >= 0, counts_missed)

    def _fed_before(self, index: int) -> int:
        """Return the total size of the chunks before a buffered chunk. The caller holds `_lock`."""
        return self._fed - sum(len(chunk.data) + CHUNK_BYTES for chunk in islice(self._chunks, max(0, index), None))

    def record_by(self, recorder: TapReader | None) -> None:
        """Set the recorder, or None. The buffer keeps more chunks for it, and lines that can wait keep to its pace."""
        with self._lock:
            self._recorder = recorder
        self._resume()

    @property
    def is_ahead(self) -> bool:
        """Whether a line that can wait must pause until the recorder has taken chunks."""
        recorder = self._recorder
        return recorder is not None and not self._stalled and self._fed - recorder.place >= UNTAKEN_BYTES

    async def apace(self) -> None:
        """Wait while the line is ahead of its recorder, at most `PACE_SECONDS`. Await it before reading such a line."""
        if not self.is_ahead:
            return
        taken, wake = loop_event(direct=True)
        if self._pause(wake):
            try:
                async with asyncio.timeout(PACE_SECONDS):
                    await taken.wait()
            except TimeoutError:
                self._stalled = True

    def _pause(self, resume: Callable[[], object]) -> bool:
        with self._lock:
            if self._closed or not self.is_ahead:
                return False
            self._paused.append(resume)
            return True

    def _resume(self) -> None:
        """End all pauses: the recorder has taken chunks, or was changed."""
        with self._lock:
            self._stalled = False
            paused, self._paused = self._paused, []
        wake_all(paused)

    def close(self) -> None:
        """End the readers: they take what is kept, and then end."""
        self.collect()
        with self._lock:
            self._closed = True
            waiting = self._pop_waiting() + self._paused
        wake_all(waiting)

    def _take(
        self, start: int, fed: int | None, wake: Callable[[], object] | None, counts_missed: bool
    ) -> tuple[list[Chunk | Gap], int, int, bool]:
        """Return chunks from number `start` on, the number to continue with, and whether that is the end.

        `fed` is the size of all chunks before `start`, if it is known; the third result is that for the next call. If
        there are no chunks, `wake` is called when there are. With `counts_missed`, a gap is added to `missed`.
        """
        self.collect()
        with self._lock:
            items: list[Chunk | Gap] = []
            count = len(self._chunks)
            kept = self._next - count
            if start < kept:
                size = None if fed is None else self._fed_before(0) - fed - (kept - start) * CHUNK_BYTES
                items.append(Gap(start, kept - 1, bytes=size))
                self.missed += (kept - start) * counts_missed
                start = kept
            # By place: most readers are near the end of the chunks, and an iterator would begin at their start.
            items += [self._chunks[place] for place in range(start - kept, min(start - kept + MAX_CHUNKS, count))]
            start = min(start + MAX_CHUNKS, self._next)
            if not items and not self._closed and wake is not None:
                self._wait_for(self._fed + 1, wake)
            is_end = start == self._next
            if is_end:
                fed = self._fed
            elif fed is None or isinstance(items[0], Gap):
                fed = self._fed_before(start - kept)
            else:
                fed += sum([len(chunk.data) + CHUNK_BYTES for chunk in items if isinstance(chunk, Chunk)])
            found = items, start, fed, self._closed and is_end
        if not items:
            self.collect()  # what was held back after the first time has met no callback
        return found

    def _forget(self, wake: Callable[[], object]) -> None:
        with self._lock:
            if self._waiting.pop(wake, None) == self._next_mark:
                self._next_mark = min(self._waiting.values(), default=math.inf)

    def _pop_waiting(self) -> list[Callable[[], object]]:
        waiting, self._waiting, self._next_mark = self._waiting, {}, math.inf
        return list(waiting)

    def _mark(self, mark: int, wake: Callable[[], object]) -> bool:
        """Have `wake` called when `_fed` reaches `mark`, and return true.

        Return false, without calling `wake`, if `_fed` has reached it already or the buffer is closed.
        """
        with self._lock:
            if self._fed >= mark or self._closed:
                return False
            self._wait_for(mark, wake)
        self.collect()
        return True


class TapReader:
    """A position in a tap. Use it from one thread or one task at a time. It need not be closed.

    `begins_line`: the first bytes of the device are known to begin a line. `ended`: the tap is closed, and all chunks
    are taken.
    """

    def __init__(
        self,
        tap: ChunkBuffer,
        start: int,
        begins_line: bool = False,
        fed: int = 0,
        is_kept: bool = True,
        counts_missed: bool = True,
    ) -> None:
        self._tap = tap
        self._counts_missed = counts_missed
        self._next = start
        # The size of all chunks before its position, as of the last `rest`.
        self.place = fed
        # The same, exactly; None if the chunk before which that is was dropped before.
        self._fed: int | None = fed if is_kept else None
        self.begins_line = begins_line
        self.ended = False

    @property
    def next_seq(self) -> int:
        """The number of the next chunk to take."""
        return self._next

    def take(self, timeout: float | None) -> list[Chunk | Gap]:
        """Return the next chunks and gaps, in order. Wait up to `timeout` seconds (None: for ever) for them.

        The result is empty after the timeout, after a `Tap.nudge`, and when the tap was closed: then `ended` is true.
        """
        arrived = threading.Lock()  # an `Event` costs the line several times as much, for each reader
        arrived.acquire()
        if not (items := self._take_some(arrived.release)) and not self.ended:
            try:
                arrived.acquire(timeout=-1 if timeout is None else max(0.0, timeout))
            finally:
                self._tap._forget(arrived.release)
            items = self._take_some(None)
        return items

    async def atake(self, timeout: float | None) -> list[Chunk | Gap]:
        """As `take`. If cancelled, it has taken nothing."""
        loop = asyncio.get_running_loop()
        arrived = loop.create_future()
        wake = partial(_settle, arrived)
        if not (items := self._take_some(wake)) and not self.ended:
            timer = None if timeout is None else loop.call_later(timeout, wake)
            try:
                await arrived
            finally:
                if timer is not None:
                    timer.cancel()
                self._tap._forget(wake)
            items = self._take_some(None)
        return items

    @contextlib.contextmanager
    def woken_at(self, size: int) -> Iterator[asyncio.Event]:
        """For a `with` block on an event loop, return an event that is set when `size` bytes are there to take.

        Sizes count `CHUNK_BYTES` for each chunk. It is also set by a nudge, and when the tap is closed.
        """
        arrived, wake = loop_event(direct=True)
        if not self._tap._mark(self.place + size, wake):
            arrived.set()
        try:
            yield arrived
        finally:
            self._tap._forget(wake)

    def rest(self) -> list[Chunk | Gap]:
        """Return all chunks and gaps that are there, without waiting."""
        tap = self._tap
        end = tap.next_seq
        # Read `_fed` first: a chunk that is fed meanwhile may be taken but not counted, which costs one more look.
        self.place = tap._fed
        items = self._take_some(None)  # sets `ended`, also if there are none
        while self._next < end and not self.ended:
            items += self._take_some(None)
        if tap._recorder is self and (tap._paused or tap._stalled):
            tap._resume()
        return items

    def __iter__(self) -> Iterator[Chunk | Gap]:
        while not self.ended:
            yield from self.take(None)

    async def __aiter__(self) -> AsyncIterator[Chunk | Gap]:
        while not self.ended:
            for item in await self.atake(None):
                yield item

    def _take_some(self, wake: Callable[[], object] | None) -> list[Chunk | Gap]:
        items, self._next, self._fed, self.ended = self._tap._take(self._next, self._fed, wake, self._counts_missed)
        return items


def _settle(arrived: asyncio.Future[None]) -> None:
    """Wake the task that waits for `arrived`, from any thread."""
    loop = arrived.get_loop()
    if not runs_here(loop):
        loop.call_soon_threadsafe(_settle, arrived)
    elif not arrived.done():
        arrived.set_result(None)


def wake_all(waiting: list[Callable[[], object]]) -> None:
    """Call each callback. One that fails belongs to a closed loop, where nobody waits."""
    for wake in waiting:
        with contextlib.suppress(RuntimeError):
            wake()
