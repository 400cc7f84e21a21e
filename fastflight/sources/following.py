"""Tracks one live session: which rows it has, how long to wait for more, and why it ends.

The sync and the async path share it. They read the tap and pass what they got to `Following.feed`, which returns
batches. Any thread may ask the session to end; it still gives what had crossed the line until then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from fastflight.device import Device
from fastflight.errors import RequestError, TransportError
from fastflight.gap import Gap
from fastflight.service.requests import DEVICE_GONE, IN_MEMORY, LAYOUT_CHANGED, SERVER_DRAINING, DeviceSession
from fastflight.service.source import Batches, Noted, Summary
from fastflight.sources.live_rows import Found, LayoutWatch
from fastflight.sources.row_layout import OWN_COLUMNS
from fastflight.sources.session_rows import SessionRows, line_lost
from fastflight.tables.bare import empty
from fastflight.tables.recognition import Recognised
from fastflight.transport.chunk_buffer import Chunk, TapReader

LIMIT = "limit reached"
CLIENT = "client ended"
STOPPED = "recording stopped"


class Following:
    """One session of `request` on `device`. Call `start`, then `feed` until `ended` is set.

    `ended` is empty while the session runs, then the reason why it ended. `rows` makes the batches.
    """

    def __init__(
        self,
        device: Device,
        request: DeviceSession,
        clock: Callable[[], float] = time.monotonic,
        found: Found | None = None,
    ) -> None:
        """`found` is the layout of a session of typed rows."""
        if request.since_seq is not None and request.since_seconds is not None:
            raise RequestError(
                "it cannot be combined with since_seq", where="since_seconds", hint="Leave one of them out"
            )
        layout = None if found is None else found.layout
        watch = LayoutWatch(layout, found.end) if found and isinstance(layout, Recognised) and request.follow else None
        parser = None if layout is None else layout.parser(OWN_COLUMNS)
        self.rows = SessionRows(request, clock, parser, watch)
        # The number after the last chunk of a session that does not follow the device.
        self._memory_end = None if found is None else found.end
        self.ended = ""
        self._device = device
        self._tap = device.tap.whole() if request.requests else device.tap
        self._request = request
        self._clock = clock
        self._outages = device.outages
        # An outage not reported yet: the number of the first chunk after it, and why the line was lost.
        self._outage: tuple[int, str] | None = None
        self._recording = device.recording
        self._until = None if request.limit_seconds is None else clock() + request.limit_seconds
        self._ending = threading.Lock()
        # Why the session is to end, and the number of the first chunk after its end.
        self._end: tuple[str, int] | None = None
        self._why = ""
        self._failure: BaseException | None = None
        self._reader: TapReader | None = None

    def start(self) -> TapReader:
        """Return a reader of the traffic, placed where the session begins.

        `RequestError` for a `since_seq` that does not exist yet.
        """
        seconds = self._request.since_seconds
        since_ns = None if seconds is None else time.time_ns() - round(seconds * 1e9)
        if not self._request.follow and self._request.since_seq is None:
            since_ns = since_ns or 0
        try:
            self._reader = self._tap.reader(seq=self._request.since_seq, since_ns=since_ns)
        except RequestError as error:
            error.where = "since_seq"
            raise
        self.rows.begin(self._reader.begins_line)
        if not self._request.follow:
            self._end_at(self._tap.next_seq if self._memory_end is None else self._memory_end, IN_MEMORY)
        return self._reader

    def is_opening(self) -> bool:
        """Return whether the line is still being opened.

        `TransportError` if it cannot be opened, unless the request waits for the device (`reconnect`).
        """
        if self._device.is_open or self._request.reconnect or not self._request.follow:
            self._outages = self._device.outages
            return False
        if self._device.outages != self._outages and self._device.trouble:
            raise TransportError(self._device.trouble, where=self._device.name, hint="Is it plugged in, and free?")
        return True

    def wait_seconds(self, at_most: float) -> float:
        """Return how many seconds to wait for more traffic."""
        if self._end is not None or self._failure is not None:
            return 0.0  # the nudge may have come before anyone was waiting for it
        now = self._clock()
        deadlines = [each for each in (self._until, self.rows.deadline) if each is not None]
        return max(0.0, min([at_most, *(deadline - now for deadline in deadlines)]))

    def feed(self, items: Sequence[Chunk | Gap]) -> Batches:
        """Take what the reader got, and return the batches that are ready; all that remain once `ended` is set.

        Raises the error given to `fail`.
        """
        assert self._reader is not None
        if self._failure is not None:
            raise self._failure
        if self._device.outages != self._outages:
            self._outages = self._device.outages
            if self._request.reconnect:
                self._outage = self._tap.lost_at, self._device.trouble
            else:
                self._end_at(self._tap.lost_at, DEVICE_GONE, self._device.trouble)
        ready = self.rows.feed(self._before_end(items))
        if self._device.recording != self._recording:
            self._recording = self._device.recording
            ready.append(Noted(empty(self.rows.schema), {"recording": self._recording or STOPPED}))
        if self._outage is not None and self._reader.next_seq >= self._outage[0]:
            # If the reader is past the outage, the traffic has reported it: as a cut, or within a gap.
            if self._reader.next_seq == self._outage[0] != self.rows.after_gap:
                ready += self.rows.feed([line_lost(*self._outage, self._tap.lost_ns)])
            self._outage = None
        if self.rows.changed is not None:
            self.ended, self._why = LAYOUT_CHANGED, self.rows.changed
        elif self.rows.full or (self._until is not None and self._clock() >= self._until):
            self.ended = LIMIT
        elif self._reader.ended:
            self.ended = SERVER_DRAINING
        elif self._end is not None and self._reader.next_seq >= self._end[1]:
            self.ended = self._end[0]
        return ready + self.rows.finish() if self.ended else ready

    def end(self, reason: str, why: str = "") -> None:
        """End the session after the traffic that has crossed the line until now. May be called from any thread.

        `reason` goes into the summary; if this is called several times, the first reason counts.
        """
        self._end_at(self._tap.next_seq, reason, why)

    def _end_at(self, seq: int, reason: str, why: str = "") -> None:
        with self._ending:
            if self._end is None:
                self._end, self._why = (reason, seq), why
        self._device.tap.nudge()

    def fail(self, error: BaseException) -> None:
        """Make the next `feed` raise `error`. From any thread."""
        self._failure = error
        self._device.tap.nudge()

    def drain(self) -> None:
        """End the session because the server shuts down. From any thread."""
        self.end(SERVER_DRAINING)

    def summary(self) -> Summary:
        """Return counts, and why the session ended."""
        why = {"why": self._why} if self.ended in (DEVICE_GONE, LAYOUT_CHANGED) and self._why else {}
        recorded = {"recorded": self._recording} if self._recording else {}
        return {"ended": self.ended, **why, **self.rows.summary(), **recorded}

    def _before_end(self, items: Sequence[Chunk | Gap]) -> Sequence[Chunk | Gap]:
        """Return the items, or parts of gaps, before the end of the session."""
        if self._end is None:
            return items
        stop = self._end[1]
        return [
            replace(item, last=min(item.last, stop - 1)) if isinstance(item, Gap) else item
            for item in items
            if (item.first if isinstance(item, Gap) else item.seq) < stop
        ]
