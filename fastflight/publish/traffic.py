"""Reads the traffic of a device for a publisher: from its tap, and from its recording what the tap has dropped.

While an output cannot be reached, nothing is read. What waits is then in the tap, which is bounded, and in the
recording, if the device is recorded. What is in neither is lost and counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing

from fastflight.concurrency import off_loop
from fastflight.device import Device
from fastflight.errors import FastFlightError
from fastflight.log import NumberedRows, Range
from fastflight.publish.rows import Position
from fastflight.sources.recorded_rows import chunks_of
from fastflight.sources.recorder import RECORDING
from fastflight.sources.recording import Readable
from fastflight.transport.chunk_buffer import Chunk, Gap

# How much of a recording is read at once.
READ_BYTES = 256 * 1024
# Traffic is in the recording about a second after the tap; look this often whether it is.
POLL_SECONDS = 0.2


class Traffic:
    """The traffic of `device` after `start`, or from now on. `recording` returns its recording; it may raise."""

    def __init__(self, device: Device, recording: Callable[[], Readable], start: Position | None) -> None:
        self._device = device
        self._recording = recording
        self._reader = device.tap.reader()
        now = self._reader.next_seq
        self.start = start if start is not None else Position(now, 0, self._reader.begins_line)
        # Traffic to take from the recording, and what to return after it. Numbers that this run of the server did not
        # use are no loss.
        self._gap = Gap(self.start.seq, now - 1) if self.start.seq < now else None
        self._unused_before = now
        self._after: list[Chunk | Gap] = []
        # Chunks that were neither in the tap nor in the recording.
        self.lost = 0

    @property
    def waiting(self) -> int:
        """The number of chunks in the tap and the recording that were not returned yet."""
        waiting = self._device.tap.next_seq - self._reader.next_seq + len(self._after)
        if self._gap is not None and self._gap.first >= self._unused_before:
            waiting += self._gap.last - self._gap.first + 1
        return waiting

    @property
    def ended(self) -> bool:
        """Whether the device was closed, and everything was returned."""
        return self._reader.ended and self._gap is None

    async def next(self, timeout: float) -> list[Chunk | Gap]:
        """Return the next traffic in order. Empty if there is none within `timeout` seconds, or after a nudge."""
        if self._gap is None:
            items = await self._reader.atake(timeout)
            if not items or not isinstance(items[0], Gap):
                return items
            self._gap, self._after = items[0], items[1:]
        items, self._gap = await self._fill(self._gap)
        if self._gap is None:
            items, self._after = items + self._after, []
        return items

    async def _fill(self, gap: Gap) -> tuple[list[Chunk | Gap], Gap | None]:
        """Return the first part of `gap` from the recording, and the rest of the gap."""
        recorded = self._device.recording == RECORDING
        items = await off_loop(self._read, gap)
        if items:
            first = items[-1].last + 1 if isinstance(items[-1], Gap) else items[-1].seq + 1
        elif recorded:  # it will be there when the disk has it
            await asyncio.sleep(POLL_SECONDS)
            return [], gap
        else:
            items, first = [gap], gap.last + 1
        missing = [each for each in items if isinstance(each, Gap) and each.last >= self._unused_before]
        self.lost += sum(each.last - max(each.first, self._unused_before) + 1 for each in missing)
        return items, Gap(first, gap.last) if first <= gap.last else None

    def _read(self, gap: Gap) -> list[Chunk | Gap]:
        items: list[Chunk | Gap] = []
        size = 0
        try:
            with closing(self._recording().read(Range(gap.first, gap.last))) as found:
                for item in found:
                    if isinstance(item, NumberedRows):
                        items += chunks_of(item)
                        size += item.batch.nbytes
                    else:
                        items.append(Gap(item.first, item.last, item.reason))
                    if size >= READ_BYTES:
                        break
        except FastFlightError:  # it is not recorded, or cannot be read
            if not items:
                return [gap]
        return items
