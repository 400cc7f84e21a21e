"""Records the traffic of one device: reads its tap and appends to its log.

A recorder listens to its device as a live session with `reconnect` does: it goes on after an outage. It runs as a task
and needs no thread. It appends the traffic in lots: one per gathering time, or earlier when a quarter of the tap's
limit is waiting. The numbers in the log are those of the tap, so chunks that the tap dropped before the recorder took
them are a hole in the log, which reading reports. A line that can wait is read no faster than the recorder takes its
traffic, as long as the recorder takes any.

If the disk fails, live traffic goes on. The recorder tries again, at growing intervals, and takes the lots that were
not stored from the tap again; what the tap has dropped by then is missing. `Device.recording` holds the state as text,
so that live sessions can report it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import structlog

from fastflight.device import Device
from fastflight.errors import FastFlightError, SequenceConflict
from fastflight.log import Columns, Log, Ticket
from fastflight.sources.recorded_rows import log_columns
from fastflight.sources.session_lines import BEGAN, BEGAN_AT_LINE
from fastflight.transport.chunk_buffer import KEPT_BYTES, Chunk, Gap

log = structlog.get_logger(__name__)

# A quarter of the tap's limit: the rest holds the traffic that comes until the recorder's task runs.
GATHER_BYTES = KEPT_BYTES // 4
# How often the results of appends are checked while the board is silent.
SETTLE_SECONDS = 0.2
# Seconds between tries after a failure. A full disk may have room in a moment, or only when somebody has cleaned up.
FIRST_RETRY_SECONDS = 0.5
LAST_RETRY_SECONDS = 30.0
# A larger chunk may not fit into one record of the log with the rest of its lot. Only writes to a device can be so
# large.
MAX_PIECE_BYTES = 32 * 1024 * 1024

RECORDING = "recording"


class PendingLot(NamedTuple):
    """A lot on its way to the disk: the number of its first chunk, and the ticket of its append."""

    first: int
    ticket: Ticket


class Recorder:
    """Records what crosses the line of `device` from now on.

    Await `run` on the device's loop. To stop, call `end`, wait until `run` returns, then call `finish`.
    """

    def __init__(self, device: Device, device_log: Log, gather_seconds: float) -> None:
        self.device = device
        # Rows that were stored and tries that failed, since the recorder began.
        self.rows = 0
        self.failures = 0
        self._log = device_log
        self._gather_seconds = gather_seconds
        self._reader = device.tap.reader(counts_missed=False)
        self._pending: deque[PendingLot] = deque()
        # The number that the log must have next for an append to succeed: a lot is stored only if those before it are.
        self._expected = device_log.next_seq
        # Recording was off before this number, so what is missing before it is no loss.
        self._start = self._reader.next_seq
        self._begun = False
        # Seconds until the next try; 0 while appends succeed.
        self._retry = 0.0
        self._ending = False
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        device.tap.record_by(self._reader)
        self._set_state(RECORDING)

    @property
    def state(self) -> str:
        """`recording`, or `recording failed: ` and the reason; empty after `finish`."""
        return self.device.recording

    async def run(self) -> None:
        """Record until `end` is called, the tap is closed, or the task is cancelled."""
        self._loop = asyncio.get_running_loop()
        with self.device.listen():
            while not self._ending and not self._reader.ended:
                timeout = SETTLE_SECONDS if self._pending else None
                await self._store(await self._reader.agather(timeout, self._gather_seconds, GATHER_BYTES))
                self._settle()
                if self._retry:
                    await self._pause()

    def end(self) -> None:
        """Make `run` return soon. From any thread."""
        self._ending = True
        self.device.tap.nudge()
        with contextlib.suppress(RuntimeError):  # its loop is closed
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._wake.set)

    def finish(self) -> None:
        """After `run`, append the rest and wait until all appends have succeeded or failed. From any thread."""
        self._settle(wait=True)
        for chunks in _runs(self._reader.rest()):
            try:
                ticket = self._log.append(
                    self._columns(chunks), expected=self._expected, first=chunks[0].seq, paused_until=self._start
                )
            except FastFlightError as error:
                log.warning("the end was not recorded", device=self.device.name, error=str(error))
                break
            self._appended(chunks, ticket)
        self._settle(wait=True)
        self.device.tap.record_by(None)
        self._set_state("")

    async def _store(self, items: Iterable[Chunk | Gap]) -> None:
        for chunks in _runs(items):
            try:
                ticket = await self._log.aappend(
                    self._columns(chunks), expected=self._expected, first=chunks[0].seq, paused_until=self._start
                )
            except SequenceConflict:
                # An earlier lot has failed meanwhile. `_settle` reports that, and both are taken from the tap again.
                self._settle(wait=True)
                return
            except asyncio.CancelledError:
                # The append waited for room in the log. Only the loop ends here: `finish` takes the chunks again.
                self._reader = self.device.tap.reader(seq=chunks[0].seq, counts_missed=False)
                self.device.tap.record_by(self._reader)
                raise
            self._appended(chunks, ticket)

    def _columns(self, chunks: list[Chunk]) -> Columns:
        cuts = {chunk.seq: chunk.cut for chunk in chunks if chunk.cut}
        if not self._begun:
            begins_line = self.device.tap.reader(seq=chunks[0].seq, counts_missed=False).begins_line
            cuts[chunks[0].seq] = BEGAN_AT_LINE if begins_line else BEGAN
        return log_columns(chunks, cuts)

    def _appended(self, chunks: list[Chunk], ticket: Ticket) -> None:
        self._pending.append(PendingLot(chunks[0].seq, ticket))
        self._expected = ticket.last + 1
        self._begun = True

    def _settle(self, wait: bool = False) -> None:
        """Handle the results of the appends that have ended. With `wait`, wait for all of them first."""
        while self._pending and (wait or self._pending[0].ticket.done):
            try:
                appended = self._pending[0].ticket.result()
            except FastFlightError as error:
                self._handle_failure(error)
                return
            self._pending.popleft()
            self.rows += appended.last - appended.first + 1
            if self._retry:
                self._retry = 0.0
                self.device.tap.record_by(self._reader)
                log.info("recording goes on", device=self.device.name)
                self._set_state(RECORDING)

    def _handle_failure(self, error: FastFlightError) -> None:
        """Drop the pending lots, which were not stored, and prepare the next try."""
        first = self._pending[0].first
        self._pending.clear()
        self._expected = self._log.next_seq
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

    async def _pause(self) -> None:
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
        if isinstance(item, Chunk) and len(item.data) <= MAX_PIECE_BYTES:
            run.append(item)
        elif run:
            yield run
            run = []
    if run:
        yield run
