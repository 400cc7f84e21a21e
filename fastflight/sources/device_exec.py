"""`device.exec`: runs code on a device and streams its output, one row per line.

If the code raises, the stream ends with that error. If the client leaves, the code is stopped.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator

import pyarrow as pa

from fastflight.device.execute import OutputLines
from fastflight.errors import DeviceError
from fastflight.service.requests import DeviceExec
from fastflight.service.source import Batches, Estimate, Reading, Summary
from fastflight.sources.modes import BoardSource, Mode, begin

SCHEMA = pa.schema(
    [
        pa.field("line", pa.int64(), nullable=False),
        pa.field("time", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("text", pa.string(), nullable=False),
    ]
)


class LineRows:
    """Turns output into rows. `line` counts from 0; `time` is when the host received the end of the line."""

    def __init__(self) -> None:
        self._output = OutputLines()
        self._lines = 0
        self._bytes = 0

    @property
    def schema(self) -> pa.Schema:
        """Always known."""
        return SCHEMA

    def feed(self, piece: bytes) -> Batches:
        """Return the lines that these bytes complete, as one batch."""
        self._bytes += len(piece)
        return self._batch(self._output.feed(piece))

    def finish(self) -> Batches:
        """Return the output after the last line end as a row."""
        return self._batch(self._output.finish())

    def summary(self) -> Summary:
        """Return the number of bytes that the code wrote."""
        return {"bytes": self._bytes}

    def _batch(self, lines: list[str]) -> Batches:
        if not lines:
            return []
        first, self._lines = self._lines, self._lines + len(lines)
        now = time.time_ns() // 1000
        return [
            pa.record_batch(
                [
                    pa.array(range(first, self._lines), pa.int64()),
                    pa.array([now] * len(lines), pa.timestamp("us", tz="UTC")),
                    pa.array(lines, pa.string()),
                ],
                schema=SCHEMA,
            )
        ]


class DeviceExecs(BoardSource[DeviceExec]):
    """The source of `device.exec` requests."""

    request = DeviceExec

    async def _open(self, request: DeviceExec, mode: Mode) -> Reading:
        rows = LineRows()
        return await begin(rows, self._batches(request, rows, mode))

    def describe(self, request: DeviceExec) -> Estimate:
        """Return the schema, which is always the same. The code is not run."""
        self._inventory.device(request.device)
        return Estimate(SCHEMA)

    async def _batches(self, request: DeviceExec, rows: LineRows, mode: Mode) -> AsyncGenerator[Batches, None]:
        async with (
            self._lease(request, mode) as session,
            contextlib.aclosing(session.follow(request.code, timeout=request.timeout)) as pieces,
        ):
            try:
                async for piece in pieces:
                    yield rows.feed(piece)
            except DeviceError:
                # Send the rest of the output before the error.
                yield rows.finish()
                raise
            yield rows.finish()
