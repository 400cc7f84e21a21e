"""All traffic of a device's line, in both directions, for every reader that wants to see it.

A `Tap` is a `ChunkBuffer` that knows what the bytes mean to a line: where the device's words are cut, which traffic
belongs to requests, and whether the next byte begins a line. A line that is lost and opened again is the same line.

The traffic of requests has no number and is not kept here, so leaving it out makes no gap, and a large transfer drops
nothing that the device said. `whole` is a tap of all traffic.

`transport.tapped` feeds it from a port.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from itertools import islice

from fastflight.errors import RequestError
from fastflight.transport.chunk_buffer import KEPT_BYTES, Chunk, ChunkBuffer, Direction, TapReader, wake_all

# Cuts at a request. No byte is lost there, but the device's line does not continue over it. After the first of them a
# line begins; after the second one, nobody knows.
AFTER_REQUEST = "a request had the device"
WITHIN_REQUEST = "a request had the device, and the board's prompt did not come back"
REQUEST_CUTS = (AFTER_REQUEST, WITHIN_REQUEST)


class Tap(ChunkBuffer):
    """The traffic of one line."""

    def __init__(self, kept_bytes: int = KEPT_BYTES, clock: Callable[[], int] = time.time_ns) -> None:
        super().__init__(kept_bytes)
        self._clock = clock
        # Why the next chunk does not continue the last one; empty if it does.
        self._cut = ""
        # Whether the device's next byte is known to begin a line.
        self._line_begins = False
        # The same after a request; None if there was no request since the last chunk.
        self._after_request: bool | None = None
        # Whether the very first byte was known to.
        self._begins = False
        # Bytes that crossed the line each way, and when the device last said something by itself (None: not yet).
        self.bytes = {"rx": 0, "tx": 0}
        self.heard_ns: int | None = None
        # The line was last lost before the chunk of this number.
        self.lost_at = 0
        # All traffic with that of requests, numbered by itself: from when it was first asked for.
        self._whole: Tap | None = None
        # Called at every nudge.
        self._heeding: list[Callable[[], object]] = []

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
        """A request has ended. `begins_line`: the device's next byte is known to begin a line."""
        with self._lock:
            self._after_request = begins_line

    def begin_line(self, reason: str) -> None:
        """The device's next byte begins a line. `reason` is why an unfinished line before it does not continue."""
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
        # A copy of just that size. A read allocates `READ_BYTES`, and its result keeps the start of that memory: a page
        # for twenty bytes, or a place in the heap between two holes that are too small for the next read.
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
            waiting = self._append(Chunk(self._next, now, direction, data, cut, request, waited))
        wake_all(waiting)

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
            return self._reader_from(start, self._begins_line(start))

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

    def nudge(self) -> None:
        """Wake the readers that wait, with nothing: something about the line is worth a look."""
        with self._lock:
            waiting = self._all_waiting() + self._heeding
            whole = self._whole
        wake_all(waiting)
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
        super().close()
        with self._lock:
            whole = self._whole
        if whole is not None:
            whole.close()
