"""Everything that crosses a device's line, both directions, for whoever wants to see it.

A `Tap` keeps the last bytes of a line as chunks, one for each read and write, numbered from 0 without holes and stamped
with the time of the read. Readers share these: each has only a place in the sequence, so a slow one holds nobody up and
costs no memory. What it did not take before the tap dropped it becomes one `Gap`, with the exact numbers.

The traffic of requests has no number and is not kept here, so that leaving it out makes no gap and a large transfer
drops nothing of what the device said. `whole` is a tap of all that crosses, for whoever asks for it.

`transport.tapped` feeds it from a port. Thread-safe: a line is used from threads and from loops, and its readers live
on others.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from itertools import islice
from typing import Literal, NamedTuple

from fastflight.errors import RequestError
from fastflight.transport.watch import runs_here

Direction = Literal["rx", "tx"]

# What a tap keeps: over 20 s of a line at 115200 baud, and 256 MB for a thousand boards that never stop talking.
KEPT_BYTES = 256 * 1024
# What a chunk costs beside its data; without it, a flood of single bytes would keep a hundred times the limit.
CHUNK_BYTES = 256
# What a recorder has not taken yet is kept up to so many times as much: two reads of a fast line are twice as much.
UNTAKEN_TIMES = 4
# A line that can wait is read on when its recorder has less than this to take, or has taken nothing for so long: then
# the disk does not answer, and who looks at the line live does not wait for it. A busy loop comes around sooner.
UNTAKEN_BYTES = KEPT_BYTES // 2
PACE_SECONDS = 10.0
# A reader takes this many chunks at once: few enough that taking them does not keep the line's owner waiting.
LOT_CHUNKS = 256
# Cuts where requests had the device in between. Nothing is lost there, but a line does not go on over it. After the
# first of them a line begins; after the second one, nobody knows.
AFTER_REQUEST = "a request had the device"
WITHIN_REQUEST = "a request had the device, and the board's prompt did not come back"
REQUEST_CUTS = (AFTER_REQUEST, WITHIN_REQUEST)


class Chunk(NamedTuple):
    """One read (`rx`, from the device) or write (`tx`). `time_ns` is UTC, in nanoseconds since 1970.

    `cut`: why it does not go on from the chunk before; empty if it does. `request`: it is the traffic of a request.
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
    """Chunks that are not there: `first` to `last`, both included. Of a tap: they were dropped before they were taken.

    Of a recording: `reason` says why, and `where` has the place of damage.
    """

    first: int
    last: int
    reason: str = ""
    where: str = ""

    def told(self) -> dict[str, int | str]:
        """What is known of it, for a message."""
        return {key: value for key, value in self._asdict().items() if value != ""}


class Tap:
    """The traffic of one line. A line that is lost and opened again is still the same line."""

    def __init__(self, kept_bytes: int = KEPT_BYTES, clock: Callable[[], int] = time.time_ns) -> None:
        self._limit = kept_bytes
        self._clock = clock
        self._lock = threading.Lock()
        self._chunks: deque[Chunk] = deque()
        self._bytes = 0
        self._next = 0
        # What was ever fed, in bytes as they count here, and those that wait for it to reach a mark.
        self._fed = 0
        self._marks: list[tuple[int, Callable[[], object]]] = []
        # Why the next chunk does not go on from the last one; empty if it does.
        self._cut = ""
        # Whether what the device says next is known to begin a line.
        self._line_begins = False
        # The same after a request; None if none was there since the last chunk.
        self._after_request: bool | None = None
        # Whether the very first of it did, and nothing of it was dropped since.
        self._begins = False
        self._dropped = False
        self._closed = False
        # Bytes that crossed the line either way, when the device last said something by itself (None: not yet), and
        # chunks that a reader did not take in time.
        self.bytes = {"rx": 0, "tx": 0}
        self.heard_ns: int | None = None
        self.missed = 0
        # Where the line was lost last: before this number.
        self.lost_at = 0
        # All traffic with that of requests, numbered by itself: from when somebody first asked for it.
        self._whole: Tap | None = None
        # The reader that keeps what comes, and reads of the line that wait for it; whether that was for nothing.
        self._recorder: TapReader | None = None
        self._paused: list[Callable[[], object]] = []
        self._stalled = False
        # Readers that wait; each is woken once.
        self._waiting: list[Callable[[], object]] = []
        # Told at every nudge.
        self._heeding: list[Callable[[], object]] = []

    @property
    def next_seq(self) -> int:
        """The number that the next chunk will have."""
        return self._next

    def begin_at(self, seq: int) -> None:
        """Number from here on. Before the first chunk: its readers see no jump."""
        with self._lock:
            assert not self._chunks and seq >= self._next
            self._next = seq

    def cut(self, reason: str) -> None:
        """What comes next does not go on from what came before: nobody saw what the device said meanwhile."""
        with self._lock:
            self._cut = reason
            self._line_begins = False
            self._after_request = None
            whole = self._whole
        if whole is not None:
            whole.cut(reason)

    def lost(self) -> None:
        """The line is lost."""
        with self._lock:
            self.lost_at = self._next
            whole = self._whole
        if whole is not None:
            whole.lost()
        self.nudge()

    def whole(self) -> Tap:
        """All traffic with that of requests, numbered by itself: from when this is called for the first time."""
        with self._lock:
            if self._whole is None:
                self._whole = Tap(self._limit, self._clock)
            return self._whole

    def end_of_request(self, *, begins_line: bool) -> None:
        """A request was there; `begins_line`: what the device says next is known to begin a line."""
        with self._lock:
            self._after_request = begins_line

    def begin_line(self, reason: str) -> None:
        """What the device says next begins a line; `reason` is why a line that had not ended has no more."""
        with self._lock:
            if self._chunks and not self._line_begins:
                self._cut = reason
            else:
                self._line_begins = True
                self._begins = self._begins or not self._chunks

    def feed(self, direction: Direction, data: bytes, *, request: bool = False, waited: bool = False) -> None:
        """Something crossed the line. Never waits for a reader. `request` and `waited` are those of `Chunk`."""
        if not data:
            return
        # A copy of just that size. A read takes room for `READ_BYTES`, and what came keeps the start of that room: of
        # twenty bytes that are kept a page, or a place in the heap between two holes that the next read does not fit.
        data = bytes(memoryview(data))
        if self._whole is not None:
            self._whole._keep(direction, data, request, waited)
        if request:
            with self._lock:
                self._count(direction, data)
        else:
            self._keep(direction, data, request, waited)

    def _count(self, direction: Direction, data: bytes) -> int:
        """Count what crossed the line, and tell when. `_lock` is held."""
        now = self._clock()
        self.bytes[direction] += len(data)
        return now

    def _keep(self, direction: Direction, data: bytes, request: bool, waited: bool) -> None:
        with self._lock:
            now = self._count(direction, data)
            cut = self._cut or self._request_cut()
            self._cut, self._after_request = "", None
            if direction == "rx":
                self.heard_ns = now
                self._line_begins = data.endswith(b"\n")
            self._chunks.append(Chunk(self._next, now, direction, data, cut, request, waited))
            self._next += 1
            self._bytes += len(data) + CHUNK_BYTES
            self._fed += len(data) + CHUNK_BYTES
            limit = self._limit
            if self._recorder is not None:
                limit = min(max(limit, self._fed - self._recorder.place), UNTAKEN_TIMES * limit)
            # The newest stays, however large.
            while self._bytes > limit and len(self._chunks) > 1:
                self._bytes -= len(self._chunks.popleft().data) + CHUNK_BYTES
                self._dropped = True
            if not self._waiting and not self._marks:
                return
            waiting, self._waiting = self._waiting, []
            if self._marks:
                waiting += [wake for mark, wake in self._marks if mark <= self._fed]
                self._marks = [each for each in self._marks if each[0] > self._fed]
        _wake(waiting)

    def _request_cut(self) -> str:
        """Why the next chunk does not go on from the last one, if that is for a request. `_lock` is held."""
        if self._after_request is None or (self._after_request and self._line_begins):
            return ""
        return AFTER_REQUEST if self._after_request else WITHIN_REQUEST

    def reader(self, *, seq: int | None = None, since_ns: int | None = None) -> TapReader:
        """A reader that starts at the next chunk, at number `seq`, or at the first kept chunk since a time.

        Where `seq` is no longer kept, the first thing read is the gap. `RequestError` for one that is not there yet.
        """
        with self._lock:
            start = self._next
            if seq is not None:
                if not 0 <= seq <= self._next:
                    raise RequestError(
                        f"there is no chunk {seq} yet", where="seq", hint=f"The next one will have number {self._next}"
                    )
                start = seq
            elif since_ns is not None:
                start = next((chunk.seq for chunk in self._chunks if chunk.time_ns >= since_ns), self._next)
            unread = islice(self._chunks, max(0, start - self._next + len(self._chunks)), None)
            taken = self._fed - sum(len(chunk.data) + CHUNK_BYTES for chunk in unread)
            return TapReader(self, start, self._begins_line(start), taken)

    def _begins_line(self, start: int) -> bool:
        """Whether the first byte that the device sent in chunk `start` or later begins a line, as far as is known."""
        if start == self._next:
            return self._line_begins if self._after_request is None else self._after_request
        kept = self._next - len(self._chunks)
        for chunk in reversed(list(islice(self._chunks, max(0, start + 1 - kept)))):
            if chunk.seq < start and chunk.direction == "rx":
                return chunk.data.endswith(b"\n")
            if chunk.cut:
                return chunk.cut == AFTER_REQUEST
        return self._begins and not self._dropped

    def record_by(self, recorder: TapReader | None) -> None:
        """Keep more for `recorder` than for others, and have lines that can wait read no faster than it takes."""
        with self._lock:
            self._recorder = recorder
        self._resume()

    @property
    def is_ahead(self) -> bool:
        """Whether the recorder is to take something before a line that can wait is read on."""
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
        """The recorder has taken what was there, or there is none."""
        with self._lock:
            self._stalled = False
            paused, self._paused = self._paused, []
        _wake(paused)

    def nudge(self) -> None:
        """Wake the readers that wait, with nothing: something about the line is worth a look."""
        with self._lock:
            waiting = self._all_waiting() + self._heeding
            whole = self._whole
        _wake(waiting)
        if whole is not None:
            whole.nudge()

    @contextlib.contextmanager
    def heeding(self, wake: Callable[[], object]) -> Iterator[None]:
        """Have `wake` called at each `nudge`, on the thread that nudges, for a `with` block."""
        with self._lock:
            self._heeding.append(wake)
        try:
            yield
        finally:
            with self._lock:
                self._heeding.remove(wake)

    def close(self) -> None:
        """The line is over: readers take what is kept and then end."""
        with self._lock:
            self._closed = True
            waiting = self._all_waiting() + self._paused
            whole = self._whole
        _wake(waiting)
        if whole is not None:
            whole.close()

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

    `begins_line`: what the device says first is known to be the beginning of a line.
    """

    def __init__(self, tap: Tap, start: int, begins_line: bool = False, taken: int = 0) -> None:
        self._tap = tap
        self._next = start
        # How much of what was ever fed it has taken, or will never take.
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
        """All that is there `seconds` after the first of it came, or as soon as it fills `size` bytes of the tap.

        For those that would rather be woken seldom than at once. A nudge ends the gathering; empty as `take` may be.
        """
        await self._afed(1, timeout)
        if not self._tap._closed and self._tap._fed > self.place:
            await self._afed(size, seconds)
        return self.rest()

    def rest(self) -> list[Chunk | Gap]:
        """All that is there now, without waiting."""
        items: list[Chunk | Gap] = []
        # In this order: what is fed meanwhile may be taken and is not counted, which costs a look for nothing.
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
    """From any thread. On the loop itself, which is where lines are read, it need not be woken."""
    if runs_here(loop):
        _settle(came)
    else:
        loop.call_soon_threadsafe(_settle, came)


def _settle(came: asyncio.Future[None]) -> None:
    if not came.done():
        came.set_result(None)


def _wake(waiting: list[Callable[[], object]]) -> None:
    for wake in waiting:
        with contextlib.suppress(RuntimeError):  # its loop is closed: nobody waits there any more
            wake()
