"""Passes requests for devices of other servers on to their owners: the one place where a cluster's server does so.

`Forwarding.passed_on` wraps a source, and `action` an action. Each call looks where the device is at that moment: on
this server the wrapped function serves it, else it goes to the owner as the same request, over Flight. Batches, notes,
the trailer and errors come back as they are. A device that is being moved is waited for. Nothing that has begun to
answer is sent again, except a live session with `reconnect`: it goes on at the new owner after an `outage` note.

The owner sees the identity of the cluster and not that of the caller: this server has already decided what the caller
may do, with the same token file (docs/decisions/0073).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

from fastflight.access.action import Action, Body, Result
from fastflight.client.answers import DEFAULT_TIMEOUT
from fastflight.client.asking import work_in_thread
from fastflight.client.connection import REUSE, ServerConnection
from fastflight.client.credentials import NONE, Credentials
from fastflight.client.interaction import Interaction, leave
from fastflight.client.rows import UploadRows
from fastflight.client.stream import RowStream
from fastflight.concurrency import Channel, iterate_in_thread, off_loop
from fastflight.concurrency.offload import unbroken
from fastflight.device import Inventory
from fastflight.errors import BusyError, FastFlightError, RequestError, Stopped, TransportError
from fastflight.runtime.outgoing import aclose
from fastflight.service import Catalog, SourceFunctions, decode
from fastflight.service.requests import SERVER_DRAINING, DeviceSession, FleetFile, Request
from fastflight.service.source import (
    Acknowledge,
    AsyncIncoming,
    AsyncReading,
    Estimate,
    Lot,
    Noted,
    Part,
    PartialUpload,
    Parts,
    Progress,
    Reading,
    Summary,
    Takes,
    held_bytes,
    lot_bytes,
)
from fastflight.sources.device_session import sendable
from fastflight.tables.bare import empty

# How long a request waits for a device that is being moved. A dead server's devices are taken over within 6 s.
MOVING_SECONDS = 8.0
LOOK_SECONDS = 0.05
# Rows of one answer or upload that wait in this server.
AHEAD_BYTES = 1024 * 1024
# Servers that are asked at the same time for their part of a listing, and how long each may take.
MAX_IN_PARALLEL = 16
LISTING_SECONDS = 5.0
# The listing of another server's device is used for the sources of one list_flights call, which run one after another.
FRESH_SECONDS = 2.0
# Keys of a trailer that the server which sends it counts itself.
OWN_COUNTS = ("rows", "bytes", "duration_seconds")


class Owners(Protocol):
    """Who owns which device. Any thread may ask."""

    def names(self) -> list[str]:
        """The devices of all servers."""

    def location(self, device: str) -> str | None:
        """The address of the other server that owns the device; None if no other server does at the moment."""

    def locations(self, device: str) -> list[str]:
        """The addresses of all servers, the owner's first."""

    def why_gone(self, device: str) -> str:
        """Why no server can own the device; empty if one will soon."""

    def first_seq(self, device: str) -> int:
        """The number with which the traffic of the present owner began."""

    def others(self) -> list[str]:
        """The addresses of the other servers."""


class Forwarding:
    """Serves requests from `inventory`, or passes them on to the servers that `owners` names."""

    def __init__(self, inventory: Inventory, owners: Owners, catalog: Catalog, credentials: Credentials = NONE) -> None:
        self._inventory = inventory
        self._owners = owners
        self._catalog = catalog
        self._credentials = credentials
        self._lock = threading.Lock()
        self._connections: dict[str, ServerConnection] = {}
        self._open: dict[RowStream, str] = {}
        self._listed: dict[str, tuple[float, list[tuple[Any, Estimate]]]] = {}

    def close(self) -> None:
        """Close the connections to other servers. Streams over them end with errors."""
        with self._lock:
            connections, self._connections = list(self._connections.values()), {}
            streams = list(self._open)
        for stream in streams:
            stream.cancel()
        for connection in connections:
            connection.close()

    def check(self) -> None:
        """End the streams from servers that have left the cluster: a network may never report that they are gone."""
        alive = {*self._owners.others()}
        with self._lock:
            lost = [stream for stream, location in self._open.items() if location not in alive]
            unused = [self._connections.pop(location) for location in self._connections.keys() - alive]
        for stream in lost:
            stream.cancel()
        for connection in unused:
            connection.close()

    def passed_on(self, source: SourceFunctions[Any]) -> SourceFunctions[Any]:
        """Return `source` for the devices of all servers."""
        forwarded = Forwarded(self, source)
        if source.request is FleetFile:
            return replace(source, parts=partial(self._located, source.parts))
        return replace(
            source,
            read=source.read and forwarded.read,
            aread=source.aread and forwarded.aread,
            write=None,
            awrite=source.awrite and forwarded.awrite,
            exchange=None,
            aexchange=source.aexchange and forwarded.aexchange,
            describe=source.describe and forwarded.describe,
            requests=source.requests and forwarded.requests,
            parts=partial(self._located, source.parts),
        )

    def action(self, action: Action) -> Action:
        """Return `action` for the devices of all servers, if its body names one."""
        if "device" not in action.body.model_fields:
            return action

        def run(body: Body) -> Iterable[Result]:
            connection = self.route(getattr(body, "device", ""))
            if connection is None:
                return action.run(body)
            timeout = DEFAULT_TIMEOUT + float(getattr(body, "timeout", 0))
            sent = body.model_dump_json(exclude_unset=True).encode()
            return connection.results(action.name, sent, timeout)

        return replace(action, run=run)

    def everywhere(self, action: str, local: Callable[[], Iterable[Result]]) -> Iterator[Result]:
        """Yield the results of `local`, and those of `action` on all other servers that answer."""

        def ask(location: str) -> list[Any]:
            try:
                return self.connection(location).results(action, b"{}", LISTING_SECONDS)
            except FastFlightError:
                return []

        yield from local()
        if others := self._owners.others():
            with ThreadPoolExecutor(MAX_IN_PARALLEL, "cluster-listing") as pool:
                for results in pool.map(ask, others):
                    yield from results

    def connection(self, location: str) -> ServerConnection:
        """Return the connection to another server."""
        with self._lock:
            if location not in self._connections:
                self._connections[location] = ServerConnection(location, DEFAULT_TIMEOUT, self._credentials)
            return self._connections[location]

    def route(self, device: str) -> ServerConnection | None:
        """Return the connection to the owner; None if the device is here, or does not exist."""
        deadline = time.monotonic() + MOVING_SECONDS
        while (where := self._place(device, deadline)) is None:
            time.sleep(LOOK_SECONDS)
        return self.connection(where) if where else None

    async def aroute(self, device: str) -> ServerConnection | None:
        """As `route`, on an event loop."""
        deadline = time.monotonic() + MOVING_SECONDS
        while True:
            where = self._place(device, deadline)
            if where is not None:
                return self.connection(where) if where else None
            await asyncio.sleep(LOOK_SECONDS)

    def _place(self, device: str, deadline: float) -> str | None:
        """Return where the device is: an address, or empty for here. None while it is being moved.

        `BusyError` if that takes too long, or cannot end by itself.
        """
        if self._inventory.find(device) is not None:
            return ""
        if location := self._owners.location(device):
            return location
        if device not in self._owners.names():
            return ""
        why = self._owners.why_gone(device)
        if why or time.monotonic() >= deadline:
            what = why or "no server owns it at the moment"
            raise BusyError(what, where=device, hint="It may be moving to another server: ask again in a few seconds")
        return None

    def opened(self, stream: RowStream, location: str) -> RowStream:
        """Note a stream from another server, until `ended`."""
        with self._lock:
            self._open[stream] = location
        return stream

    def ended(self, stream: RowStream) -> None:
        """Forget a stream, and end it."""
        stream.cancel()
        with self._lock:
            self._open.pop(stream, None)

    def remote_names(self) -> list[str]:
        """The devices that other servers own now."""
        return [name for name in self._owners.names() if self._inventory.find(name) is None]

    def first_seq(self, device: str) -> int:
        return self._owners.first_seq(device)

    def listed(self, devices: list[str]) -> Iterator[tuple[Any, Estimate]]:
        """Yield the flights of devices of other servers. Servers without answer are left out."""
        now = time.monotonic()
        stale = [name for name in devices if now - self._listed.get(name, (0.0, []))[0] > FRESH_SECONDS]
        if stale:
            with ThreadPoolExecutor(MAX_IN_PARALLEL, "cluster-listing") as pool:
                for name, flights in zip(stale, pool.map(self._flights, stale), strict=True):
                    self._listed[name] = time.monotonic(), flights
        for name in devices:
            yield from self._listed[name][1]

    def _flights(self, device: str) -> list[tuple[Any, Estimate]]:
        location = self._owners.location(device)
        if not location:
            return []
        try:
            found = self.connection(location).flights(f"{device}/*".encode())
        except FastFlightError:
            return []
        tickets = [(info.endpoints[0].ticket.ticket, info) for info in found if info.endpoints]
        return [(decode(ticket, self._catalog), estimate_of(info)) for ticket, info in tickets]

    def _located(
        self, divide: Callable[[Any, Estimate], Parts[Any]] | None, request: Request, known: Estimate
    ) -> Parts[Any]:
        """Return the parts of a request, each with the servers that can serve it: the owner first."""
        parts = Parts([Part(request)]) if divide is None else divide(request, known)

        def locations(part: Request) -> list[str]:
            # The part of a fleet that is one device has its name as the glob.
            device = part.devices if isinstance(part, FleetFile) else part.belongs_to
            # Last this server again: some clients reach it alone, or may send their token to no other host.
            return [*self._owners.locations(device), REUSE] if device in self._owners.names() else []

        return replace(parts, parts=[Part(part.request, locations(part.request)) for part in parts.parts])


class Forwarded:
    """The functions of one source, for the devices of all servers."""

    def __init__(self, forwarding: Forwarding, source: SourceFunctions[Any]) -> None:
        self._to = forwarding
        self._source = source

    def read(self, request: Any) -> Reading:
        connection = self._to.route(request.device)
        if connection is None:
            assert self._source.read is not None
            return self._source.read(request)
        stream = self._to.opened(connection.stream(request), connection.location)
        return Reading(stream.schema, self._lots(stream), lambda: stream.summary)

    async def aread(self, request: Any) -> AsyncReading:
        if isinstance(request, DeviceSession) and request.reconnect:
            return await self._follow(request)
        return await self._aread(request)

    async def _aread(self, request: Any) -> AsyncReading:
        connection = await self._to.aroute(request.device)
        if connection is None:
            assert self._source.aread is not None
            return await self._source.aread(request)
        stream = await off_loop(connection.stream, request, discard=RowStream.cancel)
        self._to.opened(stream, connection.location)
        drained = threading.Event()

        async def lots() -> AsyncGenerator[Lot, None]:
            read = partial(self._lots, stream)
            coming = iterate_in_thread(read, max_bytes=AHEAD_BYTES, size_of=lot_bytes, cancel=stream.cancel)
            async with contextlib.aclosing(coming):
                try:
                    async for lot in coming:
                        yield lot
                except Stopped:
                    if not drained.is_set():
                        raise

        def drain() -> None:
            drained.set()
            stream.cancel()

        def summary() -> Summary:
            return {"ended": SERVER_DRAINING} if drained.is_set() else stream.summary

        return AsyncReading(stream.schema, lots(), summary, drain if isinstance(request, DeviceSession) else None)

    async def _follow(self, request: DeviceSession) -> AsyncReading:
        """A live session that goes on at the next owner."""
        began = time.monotonic()
        first = await self._aread(request)
        draining = threading.Event()
        readings = [first]
        summary: dict[str, Any] = {}

        async def lots() -> AsyncGenerator[Lot, None]:
            reading, rows, moves, following = first, 0, 0, 0
            while True:
                reason = "the device moved to another server"
                try:
                    async for lot in reading.all_lots():
                        for batch in (item.batch if isinstance(item, Noted) else item for item in lot):
                            rows += batch.num_rows
                            if batch.num_rows and "seq" in batch.schema.names:
                                following = batch["seq"][-1].as_py() + 1
                        yield lot
                    ended = reading.summary()
                    if ended.get("ended") != SERVER_DRAINING or draining.is_set():
                        break
                except (TransportError, BusyError, Stopped) as error:
                    reason = error.what
                finally:
                    await aclose(reading.lots)
                moves += 1
                limit = None if request.limit_rows is None else max(0, request.limit_rows - rows)
                seconds = request.limit_seconds
                left = None if seconds is None else max(0.0, seconds - (time.monotonic() - began))
                update = {"limit_rows": limit, "limit_seconds": left, "since_seconds": None}
                reading, since = await self._resume(request.model_copy(update=update), following)
                readings.append(reading)
                yield [Noted(empty(first.schema), {"outage": {"reason": reason, "next_seq": since}})]
            summary.update({key: value for key, value in ended.items() if key not in OWN_COUNTS})
            summary["outages"] = int(summary.get("outages", 0)) + moves

        def drain() -> None:
            draining.set()
            if (drain_present := readings[-1].drain) is not None:
                drain_present()

        return AsyncReading(first.schema, lots(), lambda: summary, drain)

    async def _resume(self, request: DeviceSession, following: int) -> tuple[AsyncReading, int]:
        """Open the session at the owner, with all that it has received since it took the device over.

        If only the way to it was lost, the session goes on at the number `following`.
        """
        deadline = time.monotonic() + 2 * MOVING_SECONDS
        while True:
            try:
                await self._to.aroute(request.device)
                since = max(following, self._to.first_seq(request.device))
                return await self._aread(request.model_copy(update={"since_seq": since})), since
            except (TransportError, BusyError, Stopped, RequestError) as error:
                # The number is not the client's: an owner that is still moving has not reached it yet.
                is_final = isinstance(error, RequestError) and error.where != "since_seq"
                if is_final or time.monotonic() > deadline:
                    raise
                await asyncio.sleep(LOOK_SECONDS)

    def _lots(self, stream: RowStream) -> Generator[Lot, None, None]:
        try:
            for batch, note in stream.pieces():
                yield [batch if note is None else Noted(batch, note)]
        finally:
            self._to.ended(stream)

    async def awrite(
        self, request: Any, schema: pa.Schema, batches: AsyncIterator[pa.RecordBatch], acknowledge: Acknowledge
    ) -> Summary:
        connection = await self._to.aroute(request.device)
        if connection is None:
            assert self._source.awrite is not None
            return await self._source.awrite(request, schema, batches, acknowledge)
        waiting = Channel[pa.RecordBatch](AHEAD_BYTES)

        def stored(kept: PartialUpload) -> Iterator[pa.RecordBatch]:
            acknowledge(kept)
            return iter(waiting)

        rows = UploadRows(schema, iter(waiting), after=stored if getattr(request, "resume", False) else None)
        upload = connection.upload(request, rows, lambda rows, size, _: acknowledge(Progress(rows, size)))
        writing = asyncio.ensure_future(work_in_thread(upload))
        writing.add_done_callback(lambda _: waiting.close())
        writing.add_done_callback(lambda done: done.cancelled() or done.exception())
        feeding = asyncio.ensure_future(_feed(batches, waiting))
        try:
            # The client may send nothing more until it hears of what it has sent.
            await asyncio.wait([feeding, writing], return_when=asyncio.FIRST_COMPLETED)
            if feeding.done():
                feeding.result()
            return asdict(await asyncio.shield(writing))
        except BaseException as error:
            waiting.fail(error if isinstance(error, FastFlightError) else Stopped("the upload broke off"))
            if not writing.done():
                writing.cancel()
                await asyncio.wait([writing])
            raise
        finally:
            feeding.cancel()
            await asyncio.wait([feeding])

    async def aexchange(self, request: Any, schema: pa.Schema, batches: AsyncIncoming) -> AsyncReading:
        connection = await self._to.aroute(request.device)
        if connection is None:
            assert self._source.aexchange is not None
            return await self._source.aexchange(request, schema, batches)
        interaction = await off_loop(connection.interaction, request, discard=leave)
        rows = self._to.opened(interaction.rows, connection.location)
        sending = asyncio.ensure_future(_send(batches, interaction))

        async def lots() -> AsyncGenerator[Lot, None]:
            pieces = iterate_in_thread(
                partial(self._lots, rows), max_bytes=AHEAD_BYTES, size_of=lot_bytes, cancel=interaction.cancel
            )
            try:
                async for lot in pieces:
                    yield lot
            finally:
                await unbroken(_end(pieces, sending, interaction, batches))

        return AsyncReading(rows.schema, lots(), lambda: rows.summary)

    def describe(self, request: Any) -> Estimate:
        connection = self._to.route(request.device)
        if connection is None:
            assert self._source.describe is not None
            return self._source.describe(request)
        # Not kept: the device may move, and the owner caches it.
        return estimate_of(connection.info(request))

    def requests(self, takes: Takes) -> Iterator[tuple[Any, Estimate]]:
        assert self._source.requests is not None
        yield from self._source.requests(takes)
        elsewhere = [name for name in self._to.remote_names() if takes(name)]
        for request, known in self._to.listed(elsewhere):
            if isinstance(request, self._source.request):
                yield request, known


def estimate_of(info: Any) -> Estimate:
    """Return what another server knows of an answer."""
    note: Mapping[str, Any] | None = json.loads(info.app_metadata) if info.app_metadata else None
    schema = info.schema if len(info.schema) else None
    return Estimate(schema, info.total_records, info.total_bytes, note=note)


async def _feed(batches: AsyncIterator[pa.RecordBatch], waiting: Channel[pa.RecordBatch]) -> None:
    async for batch in batches:
        try:
            await waiting.aput(batch, held_bytes(batch))
        except Stopped:  # the upload has ended; awaiting it raises the reason
            return
    waiting.finish()


async def _send(batches: AsyncIncoming, interaction: Interaction) -> None:
    try:
        async for batch in batches:
            for data in sendable(batch):
                await off_loop(interaction.send, data)
        interaction.done()
    except (TransportError, Stopped):  # the exchange has ended; reading its rows raises the reason
        return
    except FastFlightError:
        interaction.cancel()


async def _end(
    pieces: AsyncGenerator[Lot, None], sending: asyncio.Future[None], interaction: Interaction, batches: AsyncIncoming
) -> None:
    await off_loop(interaction.cancel)  # also ends a send that waits for the device
    sending.cancel()
    await asyncio.wait([sending])
    await pieces.aclose()
    await off_loop(interaction.settle)
    await batches.aclose()
