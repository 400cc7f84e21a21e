"""`device.exec`: the output of a piece of code on a device, a row per line, as it runs.

The rows end with the error that the code raised, if it did. A reader that leaves stops the code.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import AsyncGenerator, Callable, Generator

import pyarrow as pa

from fastflight.device import Inventory
from fastflight.errors import DeviceError
from fastflight.service.requests import DeviceExec
from fastflight.service.source import AsyncReading, Estimate, Lot, Reading, Source, Summary
from fastflight.sources.reading import abegin, begin

SCHEMA = pa.schema(
    [
        pa.field("line", pa.int64(), nullable=False),
        pa.field("time", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("text", pa.string(), nullable=False),
    ]
)

# Output without line ends is cut into lines of this length, rather than kept until the code ends.
MAX_LINE_BYTES = 64 * 1024


class LineRows:
    """Lines of output as they come in. `line` counts from 0; `time` is when the host received the line's end."""

    def __init__(self, clock: Callable[[], int] = time.time_ns) -> None:
        self._clock = clock
        self._held = b""
        self._lines = 0
        self._bytes = 0

    @property
    def schema(self) -> pa.Schema:
        """Always known."""
        return SCHEMA

    def feed(self, piece: bytes) -> Lot:
        """The lines that these bytes complete, as one batch."""
        self._bytes += len(piece)
        *lines, self._held = (self._held + piece).split(b"\n") if piece else [self._held]
        while len(self._held) > MAX_LINE_BYTES:
            lines.append(self._held[:MAX_LINE_BYTES])
            self._held = self._held[MAX_LINE_BYTES:]
        return self._batch(lines)

    def finish(self) -> Lot:
        """What stands after the last line end."""
        last, self._held = self._held, b""
        return self._batch([last] if last else [])

    def summary(self) -> Summary:
        """What the code wrote."""
        return {"bytes": self._bytes}

    def _batch(self, lines: list[bytes]) -> Lot:
        if not lines:
            return []
        first, self._lines = self._lines, self._lines + len(lines)
        now = self._clock() // 1000
        return [
            pa.record_batch(
                [
                    pa.array(range(first, self._lines), pa.int64()),
                    pa.array([now] * len(lines), pa.timestamp("us", tz="UTC")),
                    pa.array([line.removesuffix(b"\r").decode("utf-8", "replace") for line in lines], pa.string()),
                ],
                schema=SCHEMA,
            )
        ]


class DeviceExecs:
    """The source of `device.exec` requests."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory

    def source(self) -> Source[DeviceExec]:
        """For the catalog."""
        return Source(DeviceExec, read=self.read, aread=self.aread, describe=self.describe)

    def read(self, request: DeviceExec) -> Reading:
        rows = LineRows()
        return begin(rows, self._lots(request, rows))

    async def aread(self, request: DeviceExec) -> AsyncReading:
        rows = LineRows()
        return await abegin(rows, self._alots(request, rows))

    def describe(self, request: DeviceExec) -> Estimate:
        """The schema is the same for all; the code is not run."""
        self._inventory.device(request.device)
        return Estimate(SCHEMA, keep_seconds=math.inf)

    def _lots(self, request: DeviceExec, rows: LineRows) -> Generator[Lot, None, None]:
        device = self._inventory.device(request.device)
        with (
            device.lease(holder(request), interrupt=request.interrupt) as session,
            contextlib.closing(session.follow(request.code, timeout=request.timeout)) as pieces,
        ):
            try:
                for piece in pieces:
                    yield rows.feed(piece)
            except DeviceError:
                # What the code wrote before it raised is handed over first.
                yield rows.finish()
                raise
            yield rows.finish()

    async def _alots(self, request: DeviceExec, rows: LineRows) -> AsyncGenerator[Lot, None]:
        device = self._inventory.device(request.device)
        async with (
            device.alease(holder(request), interrupt=request.interrupt) as session,
            contextlib.aclosing(session.follow(request.code, timeout=request.timeout)) as pieces,
        ):
            try:
                async for piece in pieces:
                    yield rows.feed(piece)
            except DeviceError:
                yield rows.finish()
                raise
            yield rows.finish()


def holder(request: DeviceExec) -> str:
    """What others are told while the request has the device."""
    return f"a {request.type} request ({request.mode})"
