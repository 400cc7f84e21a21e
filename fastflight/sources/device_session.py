"""`device.session`: the live traffic of a device as rows, and bytes to be sent to it.

Reading disturbs nobody: the line is read while nobody has the device, and what others do with it is seen by the line's
tap, where each reader has a place of its own. The traffic of requests is shown to those only that ask for it. Writing
has the bare line for as long as it lasts, as a bridge's client has: others are told so. An exchange is both at once,
and ends with its input.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from dataclasses import replace
from functools import partial

import pyarrow as pa

from fastflight.concurrency.exclusive import IdleClaim
from fastflight.device import Device, Inventory
from fastflight.errors import DataError, RequestError, Stopped, TransportError
from fastflight.runtime.admission import IDLE_SECONDS
from fastflight.service.requests import DeviceSession
from fastflight.service.source import (
    Acknowledge,
    AsyncIncoming,
    AsyncReading,
    Estimate,
    Incoming,
    Lot,
    Progress,
    Reading,
    Sent,
    Source,
    Summary,
    Takes,
)
from fastflight.sources.following import CLIENT, GONE, Following
from fastflight.sources.held_line import LineTask, LineThread
from fastflight.sources.reading import abegin, begin
from fastflight.sources.session_rows import SessionRows

# A thread that waits for a device looks this often whether its client is still there.
LOOK_SECONDS = 0.2
# On a loop that is somebody else's work; a word of life is wanted now and then.
SILENCE_SECONDS = 5.0
# How others are told of an exchange that has the device: a person's terminal, or a program in its place.
INTERACTIVE = "an interactive session (a REPL)"


class DeviceSessions:
    """The source of `device.session` requests."""

    def __init__(self, inventory: Inventory, idle_seconds: float = IDLE_SECONDS) -> None:
        self._inventory = inventory
        self._idle_seconds = idle_seconds

    def source(self) -> Source[DeviceSession]:
        """For the catalog."""
        return Source(
            DeviceSession,
            read=self.read,
            aread=self.aread,
            write=self.write,
            awrite=self.awrite,
            exchange=self.exchange,
            aexchange=self.aexchange,
            describe=self.describe,
            requests=self.requests,
        )

    def read(self, request: DeviceSession) -> Reading:
        device = self._inventory.device(request.device)
        following = Following(device, request)
        reading = begin(following.rows, _lots(device, request, following))
        return replace(reading, summary=following.summary, drain=following.drain)

    async def aread(self, request: DeviceSession) -> AsyncReading:
        device = self._inventory.device(request.device)
        following = Following(device, request)
        reading = await abegin(following.rows, _alots(device, request, following))
        return replace(reading, summary=following.summary, drain=following.drain)

    def write(self, request: DeviceSession, schema: pa.Schema, batches: Sent, acknowledge: Acknowledge) -> Summary:
        check_sendable(schema)
        progress = Progress(0, 0)
        with self._inventory.device(request.device).line(holder(request)) as port:
            with LineThread(port, _unheeded) as line:
                for batch in batches:
                    size = 0
                    for data in sendable(batch):
                        line.send(data, batches.check)
                        size += len(data)
                    progress = Progress(progress.rows + batch.num_rows, progress.bytes + size)
                    acknowledge(progress)
        return {"rows": progress.rows, "bytes": progress.bytes}

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
            async with LineTask(port, _unheeded) as line:
                async for batch in batches:
                    size = 0
                    for data in sendable(batch):
                        await line.send(data)
                        size += len(data)
                    progress = Progress(progress.rows + batch.num_rows, progress.bytes + size)
                    acknowledge(progress)
        return {"rows": progress.rows, "bytes": progress.bytes}

    def exchange(self, request: DeviceSession, schema: pa.Schema, batches: Incoming) -> Reading:
        check_sendable(schema)
        device = self._inventory.device(request.device)
        following = Following(device, request)
        talk = _talk(device, request, following, batches, self._idle_claim(following))
        reading = begin(following.rows, talk)
        return replace(reading, summary=following.summary, drain=following.drain)

    async def aexchange(self, request: DeviceSession, schema: pa.Schema, batches: AsyncIncoming) -> AsyncReading:
        check_sendable(schema)
        device = self._inventory.device(request.device)
        following = Following(device, request)
        talk = _atalk(device, request, following, batches, self._idle_claim(following))
        reading = await abegin(following.rows, talk)
        return replace(reading, summary=following.summary, drain=following.drain)

    def _idle_claim(self, following: Following) -> IdleClaim:
        """The claim of an exchange that sends nothing to its device."""

        def leave(idle: float) -> None:
            why = f"nothing was sent for {idle:.0f} s, and somebody else asked for the device"
            following.fail(Stopped(why, hint="Open it again when they are done"))

        return IdleClaim(self._idle_seconds, leave)

    def describe(self, request: DeviceSession) -> Estimate:
        """The schema is the request's; how many rows there will be, nobody knows."""
        self._inventory.device(request.device)
        return Estimate(SessionRows(request).schema, keep_seconds=math.inf)

    def requests(self, takes: Takes) -> Iterator[tuple[DeviceSession, Estimate]]:
        """A session of every device, from now on."""
        for name in filter(takes, self._inventory.names()):
            request = DeviceSession(device=name)
            yield request, self.describe(request)


def _lots(device: Device, request: DeviceSession, following: Following) -> Generator[Lot, None, None]:
    with _named():
        reader = following.start()
    with device.listen():
        ready: Lot = []
        while following.is_opening():
            ready += following.rows.feed(reader.take(LOOK_SECONDS))
        yield ready
        while not following.ended:
            yield following.feed(reader.take(following.patience(LOOK_SECONDS)))


async def _alots(device: Device, request: DeviceSession, following: Following) -> AsyncGenerator[Lot, None]:
    with _named():
        reader = following.start()
    with device.listen():
        ready: Lot = []
        while following.is_opening():
            ready += following.rows.feed(await reader.atake(LOOK_SECONDS))
        yield ready
        given = time.monotonic()
        while not following.ended:
            lot = following.feed(await reader.atake(following.patience(SILENCE_SECONDS)))
            # Each word to the thread that answers costs more than what it would wait for.
            if lot or time.monotonic() - given >= SILENCE_SECONDS:
                yield lot
                given = time.monotonic()


def _talk(
    device: Device, request: DeviceSession, following: Following, batches: Incoming, claim: IdleClaim
) -> Generator[Lot, None, None]:
    with _gone(following), device.line(INTERACTIVE, claim=claim) as port, _named():
        claim.use()
        reader = following.start()
        with LineThread(port, partial(_lost, following)) as line:
            sending = threading.Thread(target=_send_all, args=(batches, line, following, claim), name="session-input")
            sending.start()
            try:
                yield []
                while not following.ended:
                    yield following.feed(reader.take(following.patience(LOOK_SECONDS)))
            finally:
                batches.close()
                line.give_back()
                sending.join()
        if line.failure is not None:
            raise line.failure


async def _atalk(
    device: Device, request: DeviceSession, following: Following, batches: AsyncIncoming, claim: IdleClaim
) -> AsyncGenerator[Lot, None]:
    with _gone(following):
        async with device.aline(INTERACTIVE, claim=claim) as port:
            claim.use()
            with _named():
                reader = following.start()
            async with LineTask(port, partial(_lost, following)) as line:
                sending = asyncio.ensure_future(_asend_all(batches, line, following, claim))
                try:
                    yield []
                    given = time.monotonic()
                    while not following.ended:
                        lot = following.feed(await reader.atake(following.patience(SILENCE_SECONDS)))
                        if lot or time.monotonic() - given >= SILENCE_SECONDS:
                            yield lot
                            given = time.monotonic()
                finally:
                    sending.cancel()
                    await asyncio.wait({sending})
                    await batches.aclose()
            if line.failure is not None:
                raise line.failure


def _send_all(batches: Incoming, line: LineThread, following: Following, claim: IdleClaim) -> None:
    try:
        for batch in batches:
            for data in sendable(batch):
                line.send(data)
                claim.use()
    except TransportError:
        return  # the line's failure is told by the line
    except Exception as error:
        following.fail(error)
    else:
        following.end(CLIENT)


async def _asend_all(batches: AsyncIncoming, line: LineTask, following: Following, claim: IdleClaim) -> None:
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


def _lost(following: Following, error: TransportError) -> None:
    following.end(GONE, error.what)


def _unheeded(error: TransportError) -> None:
    """Who writes is told by the next write."""


@contextlib.contextmanager
def _gone(following: Following) -> Iterator[None]:
    """A line that broke has ended the session, which says so; it has not failed."""
    try:
        yield
    except TransportError:
        if following.ended != GONE:
            raise


@contextlib.contextmanager
def _named() -> Iterator[None]:
    """A place that is not there names the request's key."""
    try:
        yield
    except RequestError as error:
        if error.where == "seq":
            error.where = "since_seq"
        raise


def check_sendable(schema: pa.Schema) -> None:
    """`DataError` unless rows of `schema` can be sent to a device."""
    if "data" not in schema.names or schema.field("data").type not in (pa.binary(), pa.large_binary()):
        raise DataError("bytes to send need the column data: binary", where="schema")


def sendable(batch: pa.RecordBatch) -> Iterator[bytes]:
    """What the rows send."""
    column = batch.column("data")
    if column.null_count:
        raise DataError("a row has no data", where="column data", hint="Nothing of this batch was sent")
    yield from (value.as_py() for value in column if len(value.as_py()))


def holder(request: DeviceSession) -> str:
    """What others are told while the request has the device."""
    return f"a {request.type} request that sends ({request.mode})"
