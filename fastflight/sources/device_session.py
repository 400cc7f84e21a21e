"""`device.session`: streams the live traffic of a device as rows, and sends bytes to it.

Reading takes the rows from the tap of the line and does not disturb other users: the line is read while nobody holds
the device, and the tap sees the traffic of whoever does. The traffic of requests is left out unless the request asks
for it (`requests`). Writing holds the bare line until it ends, like a client of a bridge; other requests get an error
that names the holder. An exchange reads and writes at the same time, and ends when its input ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from functools import partial

import pyarrow as pa

from fastflight.concurrency.exclusive import IdleClaim
from fastflight.device import Device, Inventory
from fastflight.device.held_line import LineTask
from fastflight.errors import DataError, Stopped, TransportError
from fastflight.runtime.admission import IDLE_SECONDS
from fastflight.service.requests import DEVICE_GONE, DeviceSession
from fastflight.service.source import (
    Acknowledge,
    AsyncIncoming,
    Batches,
    Estimate,
    Progress,
    Reading,
    Summary,
    Takes,
)
from fastflight.sources.following import CLIENT, Following
from fastflight.sources.modes import BoardSource, Mode, OnLoop, begin
from fastflight.sources.session_rows import SessionRows
from fastflight.transport.chunk_buffer import TapReader

# How long a session waits for traffic before it looks whether the line could be opened.
OPENING_SECONDS = 0.2
# The name of the holder while an exchange has the device: a person's terminal, or a program in its place.
INTERACTIVE = "an interactive session (a REPL)"


class DeviceSessions(BoardSource[DeviceSession]):
    """The source of `device.session` requests."""

    request = DeviceSession

    def __init__(self, inventory: Inventory, idle_seconds: float = IDLE_SECONDS) -> None:
        super().__init__(inventory)
        self._idle_seconds = idle_seconds

    async def _open(self, request: DeviceSession, mode: Mode) -> Reading:
        device = self._inventory.device(request.device)
        following = Following(device, request)
        return await _begin(following, _batches(device, following, mode))

    async def awrite(
        self,
        request: DeviceSession,
        schema: pa.Schema,
        batches: AsyncIterator[pa.RecordBatch],
        acknowledge: Acknowledge,
    ) -> Summary:
        check_sendable(schema)
        progress = Progress(0, 0)
        async with self._inventory.device(request.device).aline(holder(request)) as port:
            async with LineTask(port, _ignore_failure) as line:
                async for batch in batches:
                    size = 0
                    for data in sendable(batch):
                        await line.send(data)
                        size += len(data)
                    progress = Progress(progress.rows + batch.num_rows, progress.bytes + size)
                    acknowledge(progress)
        return {"rows": progress.rows, "bytes": progress.bytes}

    async def aexchange(self, request: DeviceSession, schema: pa.Schema, batches: AsyncIncoming) -> Reading:
        check_sendable(schema)
        device = self._inventory.device(request.device)
        following = Following(device, request)
        answer = _exchanged(device, following, batches, self._idle_claim(following))
        return await _begin(following, answer)

    def _idle_claim(self, following: Following) -> IdleClaim:
        """Return the claim by which an exchange that has sent nothing for a while loses the device to others."""

        def leave(idle: float) -> None:
            why = f"nothing was sent for {idle:.0f} s, and somebody else asked for the device"
            following.fail(Stopped(why, hint="Open it again when they are done"))

        return IdleClaim(self._idle_seconds, leave)

    def describe(self, request: DeviceSession) -> Estimate:
        """Return the schema, which follows from the request. The number of rows is unknown.

        It is not cached: the device may be removed at any moment.
        """
        self._inventory.device(request.device)
        return Estimate(SessionRows(request).schema)

    def requests(self, takes: Takes) -> Iterator[tuple[DeviceSession, Estimate]]:
        """Yield a request for the session of every device, from now on."""
        known = None
        for name in filter(takes, self._inventory.names()):
            request = DeviceSession(device=name)
            known = known or Estimate(SessionRows(request).schema)
            yield request, known  # also if the device was removed meanwhile


async def _begin(following: Following, batches: AsyncGenerator[Batches, None]) -> Reading:
    reading = await begin(following.rows, batches)
    reading.summary, reading.drain = following.summary, following.drain
    return reading


async def _batches(device: Device, following: Following, mode: Mode) -> AsyncGenerator[Batches, None]:
    reader = following.start()
    with device.listen():
        ready: Batches = []
        while following.is_opening():
            ready += following.rows.feed(await mode.take(reader, OPENING_SECONDS))
        yield ready
        async for batches in _followed(reader, following, mode):
            yield batches


async def _followed(reader: TapReader, following: Following, mode: Mode) -> AsyncGenerator[Batches, None]:
    last_yield = time.monotonic()
    while not following.ended:
        batches = following.feed(await mode.take(reader, following.wait_seconds(mode.idle_seconds)))
        # Empty lists are held back: waking the thread that answers costs more than they are worth.
        if batches or time.monotonic() - last_yield >= mode.idle_seconds:
            yield batches
            last_yield = time.monotonic()


async def _exchanged(
    device: Device, following: Following, batches: AsyncIncoming, claim: IdleClaim
) -> AsyncGenerator[Batches, None]:
    with _line_failure_ends_session(following):
        async with device.aline(INTERACTIVE, claim=claim) as port:
            claim.use()
            reader = following.start()
            async with LineTask(port, partial(_end_on_failure, following)) as line:
                sending = asyncio.ensure_future(_send_all(batches, line, following, claim))
                try:
                    yield []
                    async for ready in _followed(reader, following, OnLoop()):
                        yield ready
                finally:
                    sending.cancel()
                    await asyncio.wait({sending})
                    await batches.aclose()
            if line.failure is not None:
                raise line.failure


async def _send_all(batches: AsyncIncoming, line: LineTask, following: Following, claim: IdleClaim) -> None:
    try:
        async for batch in batches:
            for data in sendable(batch):
                await line.send(data)
                claim.use()
    except TransportError:
        return
    except Exception as error:
        following.fail(error)
    else:
        following.end(CLIENT)


def _end_on_failure(following: Following, error: TransportError) -> None:
    following.end(DEVICE_GONE, error.what)


def _ignore_failure(error: TransportError) -> None:
    """Do nothing: the next write raises the failure."""


@contextlib.contextmanager
def _line_failure_ends_session(following: Following) -> Iterator[None]:
    """Suppress the error of a line that broke, if the session has ended for it: the trailer reports that."""
    try:
        yield
    except TransportError:
        if following.ended != DEVICE_GONE:
            raise


def check_sendable(schema: pa.Schema) -> None:
    """Raise `DataError` unless `schema` has a binary column `data`."""
    if "data" not in schema.names or schema.field("data").type not in (pa.binary(), pa.large_binary()):
        raise DataError("bytes to send need the column data: binary", where="schema")


def sendable(batch: pa.RecordBatch) -> Iterator[bytes]:
    """Yield the bytes of each row that has any. `DataError` if a row has null."""
    column = batch.column("data")
    if column.null_count:
        raise DataError("a row has no data", where="column data", hint="Nothing of this batch was sent")
    yield from (value.as_py() for value in column if len(value.as_py()))


def holder(request: DeviceSession) -> str:
    """Return the name by which the request appears as the device's holder."""
    return f"a {request.type} request that sends"
