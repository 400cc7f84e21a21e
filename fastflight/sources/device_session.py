"""`device.session`: streams the live traffic of a device as rows, and sends bytes to it.

Reading takes the rows from the tap of the line and does not disturb other users: the line is read while nobody holds
the device, and the tap sees the traffic of whoever does. The traffic of requests is left out unless the request asks
for it (`requests`). Typed rows (`as`) begin when the layout of the device's lines is known. Writing holds the bare line
until it ends, like a client of a bridge; other requests get an error that names the holder. An exchange reads and
writes at the same time, and ends when its input ends.
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
from fastflight.errors import DataError, RequestError, Stopped, TransportError
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
from fastflight.sources.live_rows import Found, LiveLayouts
from fastflight.sources.modes import BoardSource, Mode, OnLoop, begin
from fastflight.sources.row_layout import OWN_COLUMNS
from fastflight.sources.session_rows import SessionRows, require_own_layout
from fastflight.transport.chunk_buffer import TapReader

# How long a session of typed rows waits for lines that show their layout.
LAYOUT_SECONDS = 10.0
# How long a session waits for traffic before it looks whether the line could be opened.
OPENING_SECONDS = 0.2
# The name of the holder while an exchange has the device: a person's terminal, or a program in its place.
INTERACTIVE = "an interactive session (a REPL)"


class DeviceSessions(BoardSource[DeviceSession]):
    """The source of `device.session` requests."""

    request = DeviceSession

    def __init__(
        self, inventory: Inventory, idle_seconds: float = IDLE_SECONDS, layouts: LiveLayouts | None = None
    ) -> None:
        super().__init__(inventory)
        self._idle_seconds = idle_seconds
        self._layouts = layouts or LiveLayouts()

    async def _open(self, request: DeviceSession, mode: Mode) -> Reading:
        device = self._inventory.device(request.device)
        found = None
        if request.as_ is not None:
            require_own_layout(request)
            began = device.tap.next_seq
            found = await self._wait_for_layout(device, request, mode)
            if request.follow and request.since_seq is None and request.since_seconds is None:
                request = request.model_copy(update={"since_seq": began})
        following = Following(device, request, found=found)
        return await _begin(following, _batches(device, following, mode))

    async def _wait_for_layout(self, device: Device, request: DeviceSession, mode: Mode) -> Found:
        """Return the layout of a device's lines, once it has printed enough of them. Raises the error if there is none.

        A session that does not follow the device waits for nothing, and none waits for longer than it would last.
        """
        longest = LAYOUT_SECONDS if request.limit_seconds is None else min(LAYOUT_SECONDS, request.limit_seconds)
        deadline = time.monotonic() + longest
        reader = device.tap.reader(counts_missed=False)
        with device.listen():
            while True:
                found = await mode.run(self._layouts.find, device, request.since_seq)
                if found.layout is not None:
                    return found
                if not request.follow or found.is_text or time.monotonic() >= deadline:
                    raise found.refusal(device.name)
                if device.trouble and not device.is_open and not request.reconnect:
                    raise TransportError(device.trouble, where=device.name, hint="Is it plugged in, and free?")
                if reader.ended:
                    raise Stopped("the server shuts down", hint="Ask again")
                await mode.take(reader, min(mode.idle_seconds, deadline - time.monotonic()))

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
        if request.as_ is not None or not request.follow:
            raise RequestError(
                "an interactive session has bytes or lines, as they come",
                where="follow" if request.as_ is None else "as",
                hint="Leave it out",
            )
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

        It is not cached: the device may be removed at any moment. There is none yet for typed rows if the device has
        printed too little.
        """
        device = self._inventory.device(request.device)
        if request.as_ is None:
            return Estimate(SessionRows(request).schema)
        require_own_layout(request)
        found = self._layouts.find(device, request.since_seq)
        if found.layout is None:
            if found.is_text or not request.follow:
                raise found.refusal(request.device)
            return Estimate(None)
        return Estimate(SessionRows(request, parser=found.layout.parser(OWN_COLUMNS)).schema)

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
