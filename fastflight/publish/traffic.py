"""Reads the traffic of a device for a publisher: from its tap, and from its recording what the tap has dropped.

While an output cannot be reached, nothing is read. What waits is then in the tap, which is bounded, and in the
recording, if the device is recorded. What is in neither is lost and counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

from fastflight.concurrency import off_loop
from fastflight.device import Device
from fastflight.errors import RequestError
from fastflight.gap import Gap, Why
from fastflight.log import NumberedRows, Range
from fastflight.publish.rows import Position
from fastflight.sources.recorded_rows import chunks_of
from fastflight.sources.recorder import RECORDING
from fastflight.sources.recording import Readable
from fastflight.transport.chunk_buffer import Chunk

# How much of a recording is read at once.
READ_BYTES = 256 * 1024
# Traffic is in the recording about a second after the tap. Seconds between two looks for it.
FIRST_LOOK_SECONDS = 0.2
LAST_LOOK_SECONDS = 2.0


class Traffic:
    """The traffic of `device` after `start`, or from now on. `recording` returns its recording.

    `RequestError` from `recording` means that there is none.
    """

    def __init__(self, device: Device, recording: Callable[[], Readable], start: Position | None) -> None:
        self._device = device
        self._recording = recording
        self._reader = device.tap.reader(counts_missed=False)
        now = self._reader.next_seq
        # A position after `now` belongs to a recording that was deleted.
        resumed = start is not None and start.seq < now
        self.start = start if start is not None and resumed else Position(now, 0, self._reader.begins_line)
        # What to take from the recording next, and then what to return after it.
        self._gap = Gap(self.start.seq, now - 1, "") if resumed else None
        self._after: list[Chunk | Gap] = []
        # The first number of this run of the server. Most numbers between two runs are unused.
        self._first = now
        self._look_seconds = FIRST_LOOK_SECONDS
        # Chunks that were neither in the tap nor in the recording.
        self.lost = 0

    @property
    def waiting(self) -> int:
        """The number of chunks of this run of the server that were not returned yet."""
        waiting = self._device.tap.next_seq - self._reader.next_seq + len(self._after)
        if self._gap is not None:
            waiting += max(0, self._gap.last + 1 - max(self._gap.first, self._first))
        return waiting

    @property
    def ended(self) -> bool:
        """Whether the device was closed, and everything was returned."""
        return self._reader.ended and self._gap is None

    async def next(self, timeout: float) -> list[Chunk | Gap]:
        """Return the next traffic in order. Empty if there is none within `timeout` seconds, or after a nudge.

        `StorageError` if the recording cannot be read now.
        """
        if self._gap is None:
            items = await self._reader.atake(timeout)
            if not items or not isinstance(items[0], Gap):
                return items
            self._gap, self._after = items[0], items[1:]
        items, self._gap = await self._take_recorded(self._gap, timeout)
        if self._gap is None:
            items, self._after = items + self._after, []
        return items

    async def _take_recorded(self, gap: Gap, timeout: float) -> tuple[list[Chunk | Gap], Gap | None]:
        """Return the first part of `gap` from the recording, and the rest of the gap."""
        # Before reading: what is stored after that is found the next time.
        recorded = self._device.recording == RECORDING
        items = await off_loop(self._read, gap)
        if not items and recorded:  # it will be there when the disk has it
            await asyncio.sleep(min(timeout, self._look_seconds))
            self._look_seconds = min(2 * self._look_seconds, LAST_LOOK_SECONDS)
            return [], gap
        self._look_seconds = FIRST_LOOK_SECONDS
        items = items or [gap]
        self.lost += sum(self._count_lost(each) for each in items if isinstance(each, Gap))
        end = items[-1].last if isinstance(items[-1], Gap) else items[-1].seq
        return items, replace(gap, first=end + 1) if end < gap.last else None

    def _count_lost(self, gap: Gap) -> int:
        if gap.why == Why.UNUSED:  # all other missing rows were received, and are lost
            return 0
        # Without a recording nobody knows which numbers an earlier run of the server used.
        return max(0, gap.last + 1 - (gap.first if gap.why else max(gap.first, self._first)))

    def _read(self, gap: Gap) -> list[Chunk | Gap]:
        """Return the first `READ_BYTES` of `gap` in the recording; nothing if the recording has not got so far."""
        items: list[Chunk | Gap] = []
        size = 0
        try:
            recording = self._recording()
        except RequestError:
            return [gap]
        with closing(recording.read(Range(gap.first, gap.last))) as found:
            for item in found:
                if isinstance(item, NumberedRows):
                    items += chunks_of(item)
                    size += item.batch.nbytes
                else:
                    items.append(item)
                if size >= READ_BYTES:
                    break
        return items
