"""The functions of one source for the devices of all servers: carried out here, or passed on to the device's owner.

Batches, notes, the trailer and errors of the owner come back as they are. A stream that has begun to answer is never
opened again, except a live session with `reconnect` (`FollowedSession`).
"""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from fastflight.app.followed_session import FollowedSession
from fastflight.app.remote_streams import AsyncOwnedLots, Exchange, OwnedLots, upload, vetted
from fastflight.app.routes import Routes
from fastflight.client.stream import RowStream
from fastflight.concurrency import iterate_in_thread, off_loop
from fastflight.errors import Stopped
from fastflight.service import DataSource
from fastflight.service.requests import SERVER_DRAINING, DeviceSession, Request
from fastflight.service.source import (
    Acknowledge,
    AsyncIncoming,
    AsyncReading,
    Estimate,
    Lot,
    Noted,
    Part,
    Parts,
    Reading,
    Summary,
    Takes,
    lot_bytes,
)
from fastflight.sources.device_session import check_sendable, sendable

# Rows of one answer that wait in this server.
AHEAD_BYTES = 1024 * 1024
# Returns the flights of these devices.
Listed = Callable[[list[str]], Iterator[tuple[Any, Estimate]]]


class Located(DataSource[Any]):
    """`source`, with the servers that can serve each part of its requests, which `locations` returns."""

    def __init__(self, source: DataSource[Any], locations: Callable[[Request], Sequence[str]]) -> None:
        self.request, self.read, self.aread = source.request, source.read, source.aread
        self._source = source
        self._locations = locations

    def describe(self, request: Any) -> Estimate:
        return self._source.describe(request)

    def requests(self, takes: Takes) -> Iterator[tuple[Any, Estimate]]:
        return self._source.requests(takes)

    def parts(self, request: Any, known: Estimate) -> Parts[Any]:
        parts = self._source.parts(request, known)
        return replace(parts, parts=[Part(part.request, self._locations(part.request)) for part in parts.parts])


class Forwarded(Located):
    """`source` for the devices of all servers. `listed` lists the flights of other servers' devices."""

    def __init__(
        self,
        routes: Routes,
        source: DataSource[Any],
        locations: Callable[[Request], Sequence[str]],
        listed: Listed,
    ) -> None:
        super().__init__(source, locations)
        self._routes = routes
        self._listed = listed
        self.read = source.read and self._read
        self.aread = source.aread and self._aread
        self.awrite = source.awrite and self._awrite
        self.aexchange = source.aexchange and self._aexchange

    def _read(self, request: Any) -> Reading:
        connection = self._routes.route(request.device)
        if connection is None:
            assert self._source.read is not None
            return self._source.read(request)
        stream = self._routes.opened(connection.stream(request), connection.location)
        lots = OwnedLots(_lots(stream), partial(self._routes.ended, stream))
        return Reading(stream.schema, lots, lambda: stream.summary)

    async def _aread(self, request: Any) -> AsyncReading:
        if isinstance(request, DeviceSession) and request.reconnect:
            return await FollowedSession(request, self._aread_once, self._routes).open()
        return await self._aread_once(request)

    async def _aread_once(self, request: Any) -> AsyncReading:
        connection = await self._routes.aroute(request.device)
        if connection is None:
            assert self._source.aread is not None
            return await self._source.aread(request)
        stream = await off_loop(connection.stream, request, discard=RowStream.cancel)
        self._routes.opened(stream, connection.location)
        drained = threading.Event()

        def drain() -> None:
            drained.set()
            stream.cancel()

        async def end() -> None:
            self._routes.ended(stream)

        def summary() -> Summary:
            return {"ended": SERVER_DRAINING} if drained.is_set() else stream.summary

        lots = AsyncOwnedLots(_alots(stream, drained), end)
        return AsyncReading(stream.schema, lots, summary, drain if isinstance(request, DeviceSession) else None)

    async def _awrite(
        self, request: Any, schema: pa.Schema, batches: AsyncIterator[pa.RecordBatch], acknowledge: Acknowledge
    ) -> Summary:
        connection = await self._routes.aroute(request.device)
        if connection is None:
            assert self._source.awrite is not None
            return await self._source.awrite(request, schema, batches, acknowledge)
        return await upload(connection, request, schema, batches, acknowledge)

    async def _aexchange(self, request: Any, schema: pa.Schema, batches: AsyncIncoming) -> AsyncReading:
        connection = await self._routes.aroute(request.device)
        if connection is None:
            assert self._source.aexchange is not None
            return await self._source.aexchange(request, schema, batches)
        check_sendable(schema)
        exchange = await Exchange.open(connection, request, _contents(batches))
        rows = self._routes.opened(exchange.rows, connection.location)

        async def end() -> None:
            self._routes.ended(rows)
            await exchange.aclose()
            await batches.aclose()

        lots = AsyncOwnedLots(exchange.read_ahead(partial(_lots, rows), AHEAD_BYTES, lot_bytes), end)
        return AsyncReading(rows.schema, lots, lambda: rows.summary)

    def describe(self, request: Any) -> Estimate:
        connection = self._routes.route(request.device)
        if connection is None:
            return self._source.describe(request)
        # Not kept: the device may move, and the owner caches it.
        return estimate_of(connection.info(request))

    def requests(self, takes: Takes) -> Iterator[tuple[Any, Estimate]]:
        yield from self._source.requests(takes)
        elsewhere = [name for name in self._routes.remote_names() if takes(name)]
        for request, known in self._listed(elsewhere):
            if isinstance(request, self._source.request):
                yield request, known


def estimate_of(info: Any) -> Estimate:
    """Return what another server knows of an answer."""
    note: Mapping[str, Any] | None = json.loads(info.app_metadata) if info.app_metadata else None
    schema = info.schema if len(info.schema) else None
    return Estimate(schema, info.total_records, info.total_bytes, note=note)


def _lots(stream: RowStream) -> Generator[Lot, None, None]:
    for batch, note in vetted(stream):
        yield [batch if note is None else Noted(batch, note)]


async def _alots(stream: RowStream, drained: threading.Event) -> AsyncGenerator[Lot, None]:
    coming = iterate_in_thread(partial(_lots, stream), max_bytes=AHEAD_BYTES, size_of=lot_bytes, cancel=stream.cancel)
    try:
        async for lot in coming:
            yield lot
    except Stopped:
        if not drained.is_set():
            raise
    finally:
        await coming.aclose()


async def _contents(batches: AsyncIncoming) -> AsyncIterator[bytes]:
    async for batch in batches:
        for data in sendable(batch):
            yield data
