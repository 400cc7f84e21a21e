"""Records the traffic of one device: reads its tap and appends to its log.

A recorder listens to its device as a live session with `reconnect` does: it goes on after an outage. It runs as a task
and needs no thread. Its `Rounds` append the traffic, with that of other devices; when a quarter of the tap's limit is
waiting, the recorder appends it at once. The numbers in the log are those of the tap. A line that can wait is read no
faster than the recorder takes its traffic, as long as the recorder takes any.

What is missing before a row is stored with it as a `Gap`: the server was down, the recording was stopped, the line was
lost, the tap has dropped chunks before the recorder took them, or the disk did not store them. A gap begins at the last
moment at which everything is known to be stored, and ends when the line is read again.

If the disk fails, live traffic goes on. The recorder tries again, at growing intervals, and takes the rows that were
not stored from the tap again; what the tap has dropped by then is missing. `Device.recording` holds the state as text:
`recording`, or `recording failed: ` and the reason; empty after `finish`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime

import structlog

from fastflight.device import Device
from fastflight.errors import FastFlightError, StorageFull
from fastflight.gap import Gap, Why, moment
from fastflight.log import Log, NewRows
from fastflight.sources.rounds import PendingRows, Rounds
from fastflight.sources.session_lines import BEGAN, BEGAN_AT_LINE
from fastflight.transport.chunk_buffer import KEPT_BYTES, Chunk

log = structlog.get_logger(__name__)

# A quarter of the tap's limit: the rest holds the traffic that comes until the recorder's task runs.
GATHER_BYTES = KEPT_BYTES // 4
# Seconds between tries after a failure. A full disk may have room in a moment, or only when somebody has cleaned up.
FIRST_RETRY_SECONDS = 0.5
LAST_RETRY_SECONDS = 30.0
# A larger chunk may not fit into one record of the log with the chunks around it. Only writes to a device can be so
# large.
MAX_PIECE_BYTES = 32 * 1024 * 1024

RECORDING = "recording"


def _time(time_ns: int) -> datetime:
    return datetime.fromtimestamp(time_ns / 1e9, UTC)


def _why(error: FastFlightError) -> Why:
    return Why.DISK_FULL if isinstance(error, StorageFull) else Why.DISK_FAILED


class Recorder:
    """Records what crosses the line of `device` from now on.

    Await `run` on the device's loop. To stop, call `end`, wait until `run` returns, then call `finish`.
    """

    def __init__(self, device: Device, device_log: Log, rounds: Rounds, continues: bool = False) -> None:
        """`continues`: other servers may have recorded the device before, so a new log continues their recording."""
        self.device = device
        # Rows that were stored and tries that failed, since the recorder began.
        self.rows = 0
        self.failures = 0
        self.log = device_log
        self._rounds = rounds
        # Enough to take before the next round.
        self._enough = GATHER_BYTES if rounds.seconds else 1
        self._reader = device.tap.reader(counts_missed=False)
        self._pending: deque[PendingRows] = deque()
        # The number that the log must have next for an append to succeed: rows are stored only if all before them are.
        self._expected = device_log.next_seq
        # Recording was off before this number, so what is missing before it is no loss.
        self._start = self._reader.next_seq
        self._begun = False
        now = datetime.now(UTC)
        complete_to, ended = device_log.end()
        # What is missing before the next row. Its end is None until the line is read again.
        self._gap: Gap | None = None
        if continues or complete_to is not None:
            opened = now if device.is_open else None
            self._gap = Gap(0, -1, ended or Why.SERVER_DOWN, "", moment(complete_to), opened)
        # The time of the last row that was appended, and of the last one that was stored, in ns since 1970.
        self._appended_ns = self._stored_ns = time.time_ns()
        # Why rows are missing if the next ones do not follow the last.
        self._why = Why.NOT_READ
        # What the tap has dropped, by the number of the next chunk.
        self._dropped: dict[int, Gap] = {}
        # Seconds until the next try; 0 while appends succeed.
        self._retry = 0.0
        self._ending = False
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        device.tap.record_by(self._reader)
        self._set_state(RECORDING)

    async def run(self) -> None:
        """Record until `end` is called, the tap is closed, or the task is cancelled."""
        self._loop = asyncio.get_running_loop()
        with self.device.listen(), self._rounds.joined(self):
            while not self._ending and not self._reader.ended:
                # Rounds take rows meanwhile, so it may wake with few. That is rare, and does no harm.
                with self._reader.woken_at(self._enough) as arrived:
                    await arrived.wait()
                if self._retry:
                    await self._wait_to_retry()
                await self._rounds.append_now(self._take_all)
                self._settle()

    def take(self) -> list[PendingRows]:
        """Return the rows for this round. Results of appends that have ended are handled here."""
        self._settle()
        return [] if self._retry else self._take_all()

    def _take_all(self) -> list[PendingRows]:
        """Return the rows that have come. They count as appended, and are the next ones to settle."""
        items = self._reader.rest()
        if not items:
            return []
        self._dropped = {item.last + 1: item for item in items if isinstance(item, Gap)}
        taken = [self._pending_rows(chunks) for chunks in _runs(items)]
        self._pending += taken
        return taken

    def wake(self) -> None:
        """Let `run` go on at once."""
        self.device.tap.nudge()

    def end(self) -> None:
        """Make `run` return soon. From any thread."""
        self._ending = True
        self.wake()
        with contextlib.suppress(RuntimeError):  # its loop is closed
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._wake.set)

    def finish(self) -> None:
        """After `run`, append the rest and wait until all appends have succeeded or failed. From any thread."""
        self._settle(wait=True)
        self._rounds.append(self._take_all())
        self._settle(wait=True)
        self.device.tap.record_by(None)
        self._set_state("")

    def _pending_rows(self, chunks: list[Chunk]) -> PendingRows:
        """Return rows to append, and expect the next ones after them."""
        first, last_ns = chunks[0].seq, chunks[-1].time_ns
        gap = self._gap_before(chunks[0])
        rows = NewRows(self.log, len(chunks), self._expected, first, self._start, gap)
        pending = PendingRows(self._with_begin(chunks), rows, first, last_ns)
        self._gap, self._appended_ns = None, last_ns
        self._expected = first + len(chunks)
        self._begun = True
        return pending

    def _with_begin(self, chunks: list[Chunk]) -> list[Chunk]:
        """Return chunks, of which the very first one says that the recording begins with it."""
        if self._begun:
            return chunks
        begins_line = self.device.tap.reader(seq=chunks[0].seq, counts_missed=False).begins_line
        return [chunks[0]._replace(cut=BEGAN_AT_LINE if begins_line else BEGAN), *chunks[1:]]

    def _gap_before(self, chunk: Chunk) -> Gap | None:
        gap, first = self._pause(chunk.unread, chunk.seq), max(self._expected, self._start)
        if chunk.seq > first:
            start, why = (gap.from_time, gap.why) if gap is not None else (_time(self._appended_ns), self._why)
            dropped = self._dropped.get(chunk.seq)
            size = dropped.bytes if dropped is not None and dropped.first == first else None
            return Gap(first, chunk.seq - 1, why, "", start, _time(chunk.time_ns), size)
        return gap if gap is None or gap.to_time else replace(gap, to_time=_time(chunk.time_ns))

    def _pause(self, unread: tuple[int | None, int | None] | None, seq: int) -> Gap | None:
        """Return what is missing before the row `seq`, before which nothing has read the line between these times."""
        gap = self._gap
        if gap is None and (unread is None or not self._begun):
            return None
        since, until = unread or (None, None)
        start = gap.from_time if gap is not None else _time(since) if since else _time(self._appended_ns)
        times = [None if until is None else _time(until), None if gap is None else gap.to_time]
        # A recording may have begun again after the line was opened.
        end = None if unread and until is None else max(filter(None, times), default=None)
        return Gap(seq, seq - 1, Why.LINE_LOST if gap is None else gap.why, "", start, end)

    @property
    def open_gap(self) -> Gap | None:
        """What is missing after the last stored row, and is to be stored with the next one. From any thread.

        Its end is None while the line is not read.
        """
        tap = self.device.tap
        rows = tap.reader(seq=max(self._expected, self._start), counts_missed=False).rest()
        untaken = next((row for row in rows if isinstance(row, Chunk)), None)
        gap = self._gap_before(untaken) if untaken is not None else None
        gap = gap or self._pause(tap.unread, tap.next_seq)
        # Last, because an append may have taken the chunk meanwhile.
        pending = list(self._pending)
        waiting = [each.rows.gap for each in pending if each.rows.gap and each.first >= self.log.durable_end]
        return waiting[0] if waiting else gap

    @property
    def complete_to(self) -> datetime | None:
        """The present time if all that has crossed the line is stored; None if that is not known. From any thread."""
        now, tap = datetime.now(UTC), self.device.tap
        is_complete = self.device.is_open and tap.unread is None and self._gap is None and not self._pending
        return now if is_complete and tap.next_seq == self.log.durable_end else None

    def _settle(self, wait: bool = False) -> None:
        """Handle the results of the appends that have ended. With `wait`, wait for all of them first."""
        while self._pending and (ticket := self._pending[0].ticket) is not None and (wait or ticket.done):
            try:
                ticket.result()
            except FastFlightError as error:
                self._handle_failure(error)
                return
            stored = self._pending.popleft()
            self._stored_ns, self._why = stored.last_ns, Why.NOT_READ
            self.rows += stored.rows.length
            if self._retry:
                self._retry = 0.0
                self.device.tap.record_by(self._reader)
                log.info("recording goes on", device=self.device.name)
                self._set_state(RECORDING)

    def _handle_failure(self, error: FastFlightError) -> None:
        """Drop the pending rows, which were not stored, and prepare the next try."""
        first, self._gap = self._pending[0].first, self._pending[0].rows.gap
        self._appended_ns, self._why = self._stored_ns, _why(error)
        self._pending.clear()
        self._expected = self.log.next_seq
        self._begun = self.rows > 0
        # Read from the first chunk that was not stored, as far as the tap still has it.
        self._reader = self.device.tap.reader(seq=first, counts_missed=False)
        # The line must not wait for a disk that fails.
        self.device.tap.record_by(None)
        self.failures += 1
        if not self._retry:
            log.warning("recording failed", device=self.device.name, error=str(error), from_seq=first)
        self._retry = min(max(self._retry * 2, FIRST_RETRY_SECONDS), LAST_RETRY_SECONDS)
        self._set_state(f"recording failed: {error.what}")

    async def _wait_to_retry(self) -> None:
        """Wait before the next try, or until `end` is called."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._retry):
                await self._wake.wait()

    def _set_state(self, state: str) -> None:
        self.device.recording = state
        self.device.tap.nudge()


def _runs(items: Iterable[Chunk | Gap]) -> Iterator[list[Chunk]]:
    """Yield runs of chunks without a gap. A chunk too large for the log is left out, as if the tap had dropped it."""
    run: list[Chunk] = []
    for item in items:
        chunk = item if isinstance(item, Chunk) and len(item.data) <= MAX_PIECE_BYTES else None
        if run and (chunk is None or chunk.unread is not None):
            yield run
            run = []
        if chunk is not None:
            run.append(chunk)
    if run:
        yield run
