"""Keeping the traffic of one device: from its tap to its log.

A recorder listens to its device as a session does, outlives it as a session with `reconnect` does, and appends what
came in lots: one for each gathering time, or as soon as a good part of the tap is full. Numbers in the log are those of
the tap, always given as the first of the lot: what the tap dropped before it was taken is a hole there, which reading
reports. The recorder waits neither for the disk nor for anybody else, and costs no thread. A line that can wait is read
no faster than the recorder takes what comes, as long as it does.

When the disk does not take it, live traffic goes on. What could not be kept is asked of the tap again with the next
try, ever more seldom; what the tap has let go of by then is the hole. `state` says how it stands, in words that stand
on the device as well, for those that follow it live.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa
import structlog

from fastflight.device import Device
from fastflight.errors import FastFlightError, SequenceConflict
from fastflight.log import AsyncLog, Ticket
from fastflight.sources.recorded_rows import BEGAN, kept
from fastflight.transport.chunk_buffer import KEPT_BYTES, Chunk, Gap

log = structlog.get_logger(__name__)

# A quarter of what the tap keeps: the rest is for what comes until the recorder has its turn.
GATHER_BYTES = KEPT_BYTES // 4
# While something is on its way to the disk, it is asked this often what became of it, should the board fall silent.
SETTLE_SECONDS = 0.2
# A disk that is full may have room in a moment, or only when somebody has looked at it.
FIRST_RETRY_SECONDS = 0.5
LAST_RETRY_SECONDS = 30.0
# What one record can hold, with room for the rest of its lot. Only a write to a device comes in pieces this large.
MAX_PIECE_BYTES = 32 * 1024 * 1024

RECORDING = "recording"


class Waiting(NamedTuple):
    """A lot on its way to the disk."""

    first: int
    ticket: Ticket


class Recorder:
    """Keeps what crosses the line of `device` from now on. `run` it on a loop until `end`, then `finish`."""

    def __init__(self, device: Device, kept_in: AsyncLog, gather_seconds: float) -> None:
        self.device = device
        # Rows that are kept and tries that failed, since it began.
        self.rows = 0
        self.failures = 0
        self._log = kept_in
        self._gather_seconds = gather_seconds
        self._reader = device.tap.reader()
        self._waiting: deque[Waiting] = deque()
        # What the log's next number is thought to be: a lot is kept only if those before it were.
        self._expected = kept_in.next_seq
        # What came before this number nobody was to keep.
        self._start = self._reader.next_seq
        self._begun = False
        self._retry = 0.0
        self._ending = False
        self._over = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        device.tap.record_by(self._reader)
        self._told(RECORDING)

    @property
    def state(self) -> str:
        """`recording`, or `recording failed: ` and why."""
        return self.device.recording

    async def run(self) -> None:
        """Until `end`, or cancelled."""
        self._loop = asyncio.get_running_loop()
        with self.device.listen():
            while not self._ending and not self._reader.ended:
                patience = SETTLE_SECONDS if self._waiting else None
                await self._keep(await self._reader.agather(patience, self._gather_seconds, GATHER_BYTES))
                self._settle()
                if self._retry:
                    await self._pause()

    def end(self) -> None:
        """Have `run` end soon. From any thread."""
        self._ending = True
        self.device.tap.nudge()
        with contextlib.suppress(RuntimeError):  # its loop is closed
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._over.set)

    def finish(self) -> None:
        """After `run`: keep what is left, and wait until that is known to be kept or not. From any thread."""
        self._settle(wait=True)
        for chunks in _runs(self._reader.rest()):
            try:
                ticket = self._log.log.append(
                    self._batch(chunks), expected=self._expected, first=chunks[0].seq, paused_until=self._start
                )
            except FastFlightError as error:
                log.warning("the end was not recorded", device=self.device.name, error=str(error))
                break
            self._appended(chunks, ticket)
        self._settle(wait=True)
        self.device.tap.record_by(None)
        self._told("")

    async def _keep(self, items: Iterable[Chunk | Gap]) -> None:
        for chunks in _runs(items):
            try:
                ticket = await self._log.append(
                    self._batch(chunks), expected=self._expected, first=chunks[0].seq, paused_until=self._start
                )
            except SequenceConflict:
                # A lot before it has failed meanwhile, and will be told of; this one is taken again with it.
                self._settle(wait=True)
                return
            except asyncio.CancelledError:
                # It waited for room. The loop ends, and not the recording: `finish` takes it again.
                self._reader = self.device.tap.reader(seq=chunks[0].seq)
                self.device.tap.record_by(self._reader)
                raise
            self._appended(chunks, ticket)

    def _batch(self, chunks: list[Chunk]) -> pa.RecordBatch:
        cuts = {chunk.seq: chunk.cut for chunk in chunks if chunk.cut}
        if not self._begun:
            cuts[chunks[0].seq] = BEGAN
        return kept(chunks, cuts)

    def _appended(self, chunks: list[Chunk], ticket: Ticket) -> None:
        self._waiting.append(Waiting(chunks[0].seq, ticket))
        self._expected = ticket.last + 1
        self._begun = True

    def _settle(self, wait: bool = False) -> None:
        """See what became of the lots that were appended."""
        while self._waiting and (wait or self._waiting[0].ticket.done):
            try:
                appended = self._waiting[0].ticket.result()
            except FastFlightError as error:
                self._failed(error)
                return
            self._waiting.popleft()
            self.rows += appended.last - appended.first + 1
            if self._retry:
                self._retry = 0.0
                self.device.tap.record_by(self._reader)
                log.info("recording goes on", device=self.device.name)
                self._told(RECORDING)

    def _failed(self, error: FastFlightError) -> None:
        """The lots that wait are not kept, and neither is anything else until the next try."""
        first = self._waiting[0].first
        self._waiting.clear()
        self._expected = self._log.next_seq
        self._begun = self.rows > 0
        # What the tap still has is taken again.
        self._reader = self.device.tap.reader(seq=first)
        # Nobody waits for a disk that fails.
        self.device.tap.record_by(None)
        self.failures += 1
        if not self._retry:
            log.warning("recording failed", device=self.device.name, error=str(error), from_seq=first)
        self._retry = min(max(self._retry * 2, FIRST_RETRY_SECONDS), LAST_RETRY_SECONDS)
        self._told(f"recording failed: {error.what}")

    async def _pause(self) -> None:
        """Before the next try; `end` cuts it short."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._retry):
                await self._over.wait()

    def _told(self, state: str) -> None:
        self.device.recording = state
        self.device.tap.nudge()


def _runs(items: Iterable[Chunk | Gap]) -> Iterator[list[Chunk]]:
    """Chunks without a hole between them. One too long for the log is left out, as if the tap had dropped it."""
    run: list[Chunk] = []
    for item in items:
        if isinstance(item, Chunk) and len(item.data) <= MAX_PIECE_BYTES:
            run.append(item)
        elif run:
            yield run
            run = []
    if run:
        yield run
