"""The traffic of a device's line, in both directions, for any number of readers.

A `Tap` is a `ChunkBuffer` that also knows where the device's output is interrupted (a cut), which traffic belongs to
requests, and whether the device's next byte begins a line of text. It lives as long as its `DeviceLine`, over all
openings of the port.

Traffic of requests is not kept here and gets no number. So leaving it out makes no gap, and a large transfer does not
push out what the device sent by itself. `whole` returns a tap that keeps all traffic, as long as somebody holds it.

`transport.port_tap` feeds the tap from a port.
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

from fastflight.errors import RequestError
from fastflight.transport.chunk_buffer import (
    CHUNK_BYTES,
    KEPT_BYTES,
    Chunk,
    ChunkBuffer,
    Direction,
    TapReader,
    wake_all,
)

# The reasons of cuts by a request. No byte is lost there, but a line of text does not continue after it. After
# `AFTER_REQUEST` a new line begins; after `WITHIN_REQUEST` that is not known.
AFTER_REQUEST = "a request had the device"
WITHIN_REQUEST = "a request had the device, and the board's prompt did not come back"
REQUEST_CUTS = (AFTER_REQUEST, WITHIN_REQUEST)
# What `hold` keeps at the most before it is added, also if nobody looks for it.
HELD_BYTES = KEPT_BYTES // 8


class Tap(ChunkBuffer):
    """The traffic of one line."""

    def __init__(self, kept_bytes: int = KEPT_BYTES, clock: Callable[[], int] = time.time_ns) -> None:
        super().__init__(kept_bytes)
        self._clock = clock
        # Why the next chunk does not continue the last one; empty if it continues.
        self._cut = ""
        # Between which times (ns since 1970) nothing read the line before the next chunk; None if it was read.
        self._unread: tuple[int | None, int] | None = None
        # When the line was opened, and the last time at which a line that is lost now was known to work.
        self._opened_ns = 0
        self.lost_ns: int | None = None
        # Whether the device's next byte is known to begin a line.
        self._line_begins = False
        # Whether the device's next byte begins a line after a request; None if there was none since the last chunk.
        self._after_request: bool | None = None
        # Bytes that crossed the line in each direction, and when the device last sent something outside of requests.
        self._crossed = {"rx": 0, "tx": 0}
        self._heard_ns: int | None = None
        # What the device has sent and nobody has looked for yet: times, bytes and whom to notify of them; and its size.
        self._held: deque[tuple[int, bytes, Callable[[bytes], None]]] = deque()
        self._held_bytes = 0
        # Whether a thread is adding what was held.
        self._is_collecting = False
        # Held while chunks are added, so that they keep their order.
        self._adding = threading.RLock()
        # The number of the first chunk after the line was last lost.
        self.lost_at = 0
        # The tap of all traffic, if somebody holds it, and the number with which the next one begins.
        self._whole: weakref.ref[Tap] | None = None
        self._whole_start = 0
        # Called at every nudge.
        self._nudge_callbacks: list[Callable[[], object]] = []

    def cut(self, reason: str) -> None:
        """Record that the next chunk does not continue the last one, because the line was not read in between."""
        self.collect()
        with self._lock:
            self._cut = reason
            self._opened_ns = self._clock()
            self._unread = self.lost_ns if self._unread is None else self._unread[0], self._opened_ns
            self.lost_ns = None
            self._line_begins = False
            self._after_request = None
            whole = self._held_whole()
        if whole is not None:
            whole.cut(reason)

    def mark_lost(self) -> None:
        """Record that the line is lost, and wake the readers."""
        self.collect()
        with self._lock:
            self.lost_at = self._next
            if self.lost_ns is None:
                self.lost_ns = max(self._heard_ns or 0, self._opened_ns) or None
            whole = self._held_whole()
        if whole is not None:
            whole.mark_lost()
        self.nudge()

    def whole(self) -> Tap:
        """Return the tap of all traffic, including requests. It has its own numbers.

        It is fed while somebody holds it or a reader of it, since each byte is copied. A tap that is made later begins
        one number further: whoever continues with the numbers of the earlier one gets a gap.
        """
        self.collect()
        with self._lock:
            whole = self._held_whole()
            if whole is None:
                whole = Tap(self._limit, self._clock)
                whole.begin_at(self._whole_start)
                self._whole = weakref.ref(whole)
            return whole

    @property
    def unread(self) -> tuple[int | None, int | None] | None:
        """Between which times (ns since 1970) nothing has read the line since the last chunk; None if it was read.

        The first is None if the line had not been opened before, the second while it is lost.
        """
        self.collect()
        with self._lock:
            if self.lost_ns is None:
                return self._unread
            return self.lost_ns if self._unread is None else self._unread[0], None

    @property
    def byte_counts(self) -> Mapping[str, int]:
        """The bytes that crossed the line in each direction."""
        self.collect()
        return self._crossed

    @property
    def heard_ns(self) -> int | None:
        """When the device last sent something outside of requests, in nanoseconds since 1970; None: not yet."""
        self.collect()
        return self._heard_ns

    def _held_whole(self) -> Tap | None:
        return None if self._whole is None else self._whole()

    def end_of_request(self, *, begins_line: bool) -> None:
        """Record that a request has ended. `begins_line`: the device's next byte is known to begin a line."""
        self.collect()
        with self._lock:
            self._after_request = begins_line

    def feed(self, direction: Direction, data: bytes, *, request: bool = False, waited: bool = False) -> None:
        """Add bytes that crossed the line. Never waits for a reader. `request` and `waited` are those of `Chunk`."""
        if not data:
            return
        data = _copied(data)
        with self._adding:
            self.collect()
            rows = [(self._clock(), data)]
            self._add_to_whole(direction, rows, request, waited)
            if request:
                with self._lock:
                    self._crossed[direction] += len(data)
            else:
                self._add(direction, rows, waited=waited)

    def hold(self, data: bytes, notify: Callable[[bytes], None]) -> bool:
        """Add bytes that the device sends outside of requests, with the present time, when somebody looks for them.

        A row wakes the loop, and what runs then finds nothing in the caches of the processor. The rows of a second that
        are added together cost a fraction. `notify` gets the bytes before they are added. Return whether that was at
        once, because somebody waits for them or many are held.
        """
        self._held.append((self._clock(), _copied(data), notify))
        self._held_bytes += len(data) + CHUNK_BYTES
        size = self._held_bytes
        if size < HELD_BYTES and self._fed + size < self._next_mark and self._whole is None:
            return False
        self.collect()
        return True

    def collect(self) -> None:
        """Add what `hold` has got. Whoever reads the tap calls it first, from any thread."""
        if not self._held and not self._is_collecting:
            return
        with self._adding:
            outer, self._is_collecting = self._is_collecting, True  # `notify` may read the tap
            self._held_bytes = 0
            rows: list[tuple[int, bytes]] = []
            while self._held:
                now, data, notify = self._held.popleft()
                notify(data)
                rows.append((now, data))
            if rows:
                self._add_to_whole("rx", rows)
                self._add("rx", rows)
            self._is_collecting = outer

    def _add_to_whole(
        self, direction: Direction, rows: Sequence[tuple[int, bytes]], request: bool = False, waited: bool = False
    ) -> None:
        if (whole := self._held_whole()) is not None:
            whole._add(direction, rows, request, waited)
            self._whole_start = whole.next_seq + 1

    def _add(
        self, direction: Direction, rows: Sequence[tuple[int, bytes]], request: bool = False, waited: bool = False
    ) -> None:
        """Add a chunk for each of `rows`: its time and its bytes."""
        with self._lock:
            cut = self._cut or self._request_cut()
            unread, self._unread = self._unread, None
            self._cut, self._after_request = "", None
            chunks: list[Chunk] = []
            for seq, (now, data) in enumerate(rows, self._next):
                chunks.append(Chunk(seq, now, direction, data, cut, request, waited, unread))
                cut, unread = "", None
            size = sum([len(data) for _, data in rows])
            self._crossed[direction] += size
            if direction == "rx":
                self._heard_ns, newest = rows[-1]
                self._line_begins = newest.endswith(b"\n")
            waiting = self._append(chunks, size)
        wake_all(waiting)

    def _request_cut(self) -> str:
        """Return why a request cuts the next chunk off from the last one, or empty text. The caller holds `_lock`."""
        if self._after_request is None or (self._after_request and self._line_begins):
            return ""
        return AFTER_REQUEST if self._after_request else WITHIN_REQUEST

    def reader(self, *, seq: int | None = None, since_ns: int | None = None, counts_missed: bool = True) -> TapReader:
        """Return a reader that starts at the next chunk, at number `seq`, or at the first chunk kept since `since_ns`.

        Readers that count what they miss themselves are made without `counts_missed`.
        If chunk `seq` was dropped, the reader first gets the gap. `RequestError` if it does not exist yet.
        """
        self.collect()
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
            return self._reader_from(start, self._begins_line(start), counts_missed)

    def _begins_line(self, start: int) -> bool:
        """Whether the device's first byte in chunk `start` or later is known to begin a line."""
        if start == self._next:
            return self._line_begins if self._after_request is None else self._after_request
        kept = self._next - len(self._chunks)
        for chunk in reversed(list(islice(self._chunks, max(0, start + 1 - kept)))):
            if chunk.seq < start and chunk.direction == "rx":
                return chunk.data.endswith(b"\n")
            if chunk.cut:
                return chunk.cut == AFTER_REQUEST
        return False

    def nudge(self) -> None:
        """Wake the waiting readers, without a chunk, so that they look at the state of the line."""
        with self._lock:
            waiting = self._pop_waiting() + self._nudge_callbacks
            whole = self._held_whole()
        wake_all(waiting)
        if whole is not None:
            whole.nudge()

    @contextlib.contextmanager
    def on_nudge(self, wake: Callable[[], object]) -> Iterator[None]:
        """For a `with` block, call `wake` at each `nudge`, on the thread that nudges."""
        with self._lock:
            self._nudge_callbacks.append(wake)
        try:
            yield
        finally:
            with self._lock:
                self._nudge_callbacks.remove(wake)

    def close(self) -> None:
        super().close()
        with self._lock:
            whole = self._held_whole()
        if whole is not None:
            whole.close()


def _copied(data: bytes) -> bytes:
    """Return a copy in memory of the right size.

    A read allocates `READ_BYTES`, and its result keeps the start of that memory: a whole page for twenty bytes, or a
    block of the heap between two holes too small for the next read.
    """
    return bytes(memoryview(data))
