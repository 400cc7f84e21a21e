"""Publishes the rows of one device to one output, at least once, until it is ended.

It takes the next rows only when the output has acknowledged those before. After an error it sends the same rows again,
at growing intervals. A row that the output has no form for is counted, and does not stop the others. The position after
the last acknowledged row is saved while the device is recorded, so that publishing continues there when the server
starts again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import structlog

from fastflight.concurrency import off_loop
from fastflight.device import Device
from fastflight.errors import FastFlightError
from fastflight.files import replacement
from fastflight.publish.output import Message, Output
from fastflight.publish.rows import Position, PublishedLine, RowFormat, RowReader
from fastflight.publish.traffic import Traffic
from fastflight.sources.recording import Readable

log = structlog.get_logger(__name__)

# Rows in one message or request.
BATCH_ROWS = 1000
# How often a silent publisher looks at its connection.
CHECK_SECONDS = 2.0
# Seconds between tries after a failure.
FIRST_RETRY_SECONDS = 0.5
LAST_RETRY_SECONDS = 30.0
# How often the position is saved. A server that is killed sends the rows of this time again.
SAVE_SECONDS = 2.0

CONNECTING = "connecting"
PUBLISHING = "publishing"


class PositionFile:
    """The position of one publisher, in a small file. Without a path nothing is saved."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def load(self) -> Position | None:
        """Return the saved position; None if there is none. A file that cannot be read means the beginning."""
        try:
            if self._path is None or not self._path.exists():
                return None
            seq, lines, begins_line = json.loads(self._path.read_text())
            return Position(int(seq), int(lines), bool(begins_line))
        except (OSError, ValueError, TypeError) as error:
            log.warning("a position cannot be read: everything recorded is published again", error=str(error))
            return Position(0)

    def save(self, position: Position) -> None:
        """Replace the file. A failure is logged: rows may then be published again after a restart."""
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            with replacement(self._path, sync=False) as file:
                file.write(json.dumps(position).encode())
        except OSError as error:
            log.warning("the position of a publisher cannot be saved", error=error.strerror or str(error))


class Publisher:
    """Await `run`. To stop, call `end` and wait until `run` returns.

    `state` is `connecting`, `publishing`, or `failed: ` and the reason. After a failure it becomes `publishing` again
    when the output has acknowledged the rows that failed, or has a connection and no rows wait.
    """

    def __init__(
        self,
        device: Device,
        label: str,
        output: Output,
        rows: RowFormat,
        recording: Callable[[], Readable],
        positions: PositionFile,
    ) -> None:
        self.label = label
        self.state = CONNECTING
        # Rows that were acknowledged, rows that the output refused or has no form for, and lines that did not fit the
        # schema.
        self.sent = self.refused = self.misfits = 0
        self._device = device
        self._output = output
        self._positions = positions
        self._saved = positions.load() if device.recording else None
        self.traffic = Traffic(device, recording, self._saved)
        self._reader = RowReader(rows, self.traffic.start)
        self._lines: list[PublishedLine] = []
        # The rows of the first lines, while they are not acknowledged, and the number of these lines.
        self._unacknowledged: tuple[Message, int] | None = None
        self._position = self.traffic.start
        # Seconds until the next try; 0 while publishing works.
        self._retry = 0.0
        self._ending = False
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def end(self) -> None:
        """Make `run` return when the rows that were read are published, or at the next failure. From any thread."""
        self._ending = True
        self._device.tap.nudge()
        with contextlib.suppress(RuntimeError):  # its loop is closed
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._wake.set)

    async def run(self) -> None:
        """Publish until `end` is called, the device is closed, or the task is cancelled."""
        self._loop = asyncio.get_running_loop()
        saving = asyncio.ensure_future(self._save_regularly())
        try:
            while True:
                try:
                    await self._output.open()
                    await self._publish()
                    return
                except FastFlightError as error:
                    self._failed(str(error))
                except Exception as error:  # the edge of a task: it must not end for an answer that nobody foresaw
                    log.exception("publishing failed unexpectedly", device=self._device.name, output=self.label)
                    self._failed(f"unexpected {type(error).__name__}, see the log of the server")
                await self._close()
                self._retry = min(max(self._retry * 2, FIRST_RETRY_SECONDS), LAST_RETRY_SECONDS)
                if self._ending or await self._ended_within(self._retry):
                    return
        finally:
            saving.cancel()
            await self._close()
            self._save()

    async def _publish(self) -> None:
        """Publish until there is nothing more to come. Raises the errors of the output and of the recording."""
        while True:
            if self._lines:
                await self._publish_next()
                self._succeeded()
                self._retry = 0.0
                continue
            self._succeeded()
            self._position = self._reader.end
            ending = self._ending
            items = await self.traffic.next(0.0 if ending else CHECK_SECONDS)
            self._lines += self._reader.feed(items)
            self._output.check()
            if not items:
                if ending or self.traffic.ended:
                    return
                self._retry = 0.0

    async def _publish_next(self) -> None:
        """Publish the first of the lines that wait."""
        if self._unacknowledged is None:
            lines = self._lines[:BATCH_ROWS]
            rows = self._reader.rows(lines)
            self.misfits += sum(bool(each.line.data.strip()) for each in lines) - rows.num_rows
            self._unacknowledged = self._encode(rows), len(lines)
        message, count = self._unacknowledged
        refusal = await self._output.send(message) if message.rows else None
        if refusal is not None:
            log.warning("rows were refused", device=self._device.name, output=self.label, **refusal._asdict())
            self.refused += refusal.rows
        self.sent += message.rows - (refusal.rows if refusal is not None else 0)
        self._position = self._lines[count - 1].end
        del self._lines[:count]
        self._unacknowledged = None

    def _encode(self, rows: pa.RecordBatch) -> Message:
        """Return rows in the form of the output, without those for which it has none. These count as refused."""
        with contextlib.suppress(Exception):
            return self._output.encode(rows)
        good: list[int] = []
        reason = ""
        for number in range(rows.num_rows):
            try:
                self._output.encode(rows.slice(number, 1))
                good.append(number)
            except Exception as error:  # whatever it is: the next rows must not wait for this one for ever
                reason = str(error) or type(error).__name__
        refused = rows.num_rows - len(good)
        log.warning("rows were rejected", device=self._device.name, output=self.label, rows=refused, reason=reason)
        self.refused += refused
        return self._output.encode(rows.take(pa.array(good, pa.int64()))) if good else Message(0, None)

    def _succeeded(self) -> None:
        if self.state != PUBLISHING:
            self.state = PUBLISHING
            log.info("publishing", device=self._device.name, output=self.label)

    def _failed(self, reason: str) -> None:
        if not self.state.startswith("failed"):
            log.warning("publishing failed", device=self._device.name, output=self.label, error=reason)
        self.state = f"failed: {reason}"

    async def _ended_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        return self._ending

    async def _close(self) -> None:
        with contextlib.suppress(FastFlightError):
            await self._output.aclose()

    async def _save_regularly(self) -> None:
        while True:
            await off_loop(self._save)
            await asyncio.sleep(SAVE_SECONDS)

    def _save(self) -> None:
        position = self._position
        if self._device.recording and position != self._saved:
            self._positions.save(position)
            self._saved = position
