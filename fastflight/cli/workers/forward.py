"""Sources in the front whose rows are a worker's: what each device source can do, done by the device's owner.

A request's type, its checks and what it supports are those of the worker's own source. Its parts name the owner's
location, so that a client that follows locations reads there, and the front's own for one that cannot reach it.
"""

from __future__ import annotations

import glob
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import structlog

from fastflight.cli.workers import passing
from fastflight.cli.workers.pool import Pool, Worker
from fastflight.cli.workers.relay import AsyncBatches, Batches, Relay
from fastflight.client.connection import REUSE
from fastflight.concurrency import Shards
from fastflight.device import Inventory
from fastflight.errors import FastFlightError
from fastflight.service import Catalog, Source, decode
from fastflight.service.requests import DeviceFile, FleetFile, Mock, Request
from fastflight.service.source import (
    Acknowledge,
    AsyncIncoming,
    AsyncReading,
    Estimate,
    Incoming,
    Part,
    Parts,
    Reading,
    Summary,
    Takes,
)
from fastflight.service.wire import parse
from fastflight.sources import device_sources, mock
from fastflight.sources.fleet_file import FleetFiles
from fastflight.sources.listed import Flight, Listed

log = structlog.get_logger(__name__)


def forwarded_sources(pool: Pool, shards: Shards) -> list[Source[Any]]:
    """The sources of all that can be asked of the workers' devices, and the benchmark table, which any of them has."""
    # Of no devices: which functions there are is what is taken from them.
    known = device_sources(Inventory({}))
    catalog = Catalog()
    for source in known:
        catalog.add(source)
    listed = Listed(pool.names, partial(_flights, pool, catalog))
    of_devices = [_Forwarded(pool, listed).source(source) for source in known if source.request is not FleetFile]
    files = next(source for source in of_devices if source.request is DeviceFile)
    fleet = FleetFiles(files, pool.names, shards.of, partial(_of_kind, DeviceFile, listed.lately))
    return [*of_devices, fleet.source(), replace(mock.SOURCE, parts=partial(_spread, pool))]


class _Forwarded:
    """The functions of one source, each done by the worker that has the device."""

    def __init__(self, pool: Pool, listed: Listed) -> None:
        self._pool = pool
        self._listed = listed

    def source(self, given: Source[Any]) -> Source[Any]:
        """`given`, forwarded."""
        listing = self._listed.now if given.request is DeviceFile else self._listed.lately
        done: dict[str, Any] = {
            "read": self.read,
            "aread": self.aread,
            "write": self.write,
            "awrite": self.awrite,
            "exchange": self.exchange,
            "aexchange": self.aexchange,
            "describe": self.describe,
            "requests": partial(_of_kind, given.request, listing),
        }
        changed = {name: function for name, function in done.items() if getattr(given, name) is not None}
        return replace(given, **changed, parts=self.parts)

    def read(self, request: Any) -> Reading:
        worker = self._pool.owner(request.device)
        relay = _opened(worker, request)
        return Reading(relay.schema, Batches(relay, worker.governor), relay.summary)

    async def aread(self, request: Any) -> AsyncReading:
        worker = self._pool.owner(request.device)
        batches = AsyncBatches(partial(_opened, worker, request), worker.governor)
        relay = await batches.opened()
        return AsyncReading(relay.schema, batches, relay.summary)

    def write(
        self, request: Any, schema: pa.Schema, batches: Iterator[pa.RecordBatch], acknowledge: Acknowledge
    ) -> Summary:
        owner = self._pool.owner(request.device)
        return passing.write(owner, request.device, request, schema, batches, acknowledge)

    async def awrite(
        self, request: Any, schema: pa.Schema, batches: AsyncIterator[pa.RecordBatch], acknowledge: Acknowledge
    ) -> Summary:
        owner = self._pool.owner(request.device)
        return await passing.awrite(owner, request.device, request, schema, batches, acknowledge)

    def exchange(self, request: Any, schema: pa.Schema, batches: Incoming) -> Reading:
        owner = self._pool.owner(request.device)
        exchange = passing.Exchange(owner, request.device, request, schema, batches)
        return Reading(exchange.schema, Batches(exchange, owner.governor), exchange.summary)

    async def aexchange(self, request: Any, schema: pa.Schema, batches: AsyncIncoming) -> AsyncReading:
        owner = self._pool.owner(request.device)
        exchange = passing.AsyncExchange(owner, request.device, request, schema, batches)
        answer = await exchange.opened()
        return AsyncReading(answer.schema, exchange, answer.summary)

    def describe(self, request: Any) -> Estimate:
        worker = self._pool.owner(request.device)
        with worker.connected(request.device) as connection:
            info = connection.info(request)
        return Estimate(info.schema if len(info.schema) else None, info.total_records, info.total_bytes)

    def parts(self, request: Any, known: Estimate) -> Parts[Any]:
        return Parts([Part(request, _locations(self._pool.owner(request.device)))])


def _opened(worker: Worker, request: Any) -> Relay:
    with worker.connected(request.device) as connection:
        return Relay(connection.reader(request), worker, request.device)


def _locations(worker: Worker) -> Sequence[str]:
    return (worker.location, REUSE)


def _spread(pool: Pool, request: Mock, known: Estimate) -> Parts[Mock]:
    """The parts of the benchmark table, one after another at another worker; an only one is had here."""
    divided = mock.parts(request, known)
    if len(divided.parts) == 1:
        return divided
    there = [
        replace(part, locations=_locations(pool.workers[number % len(pool.workers)]))
        for number, part in enumerate(divided.parts)
    ]
    return replace(divided, parts=there)


def _of_kind(kind: type[Request], listing: Callable[[Takes], Iterable[Flight]], takes: Takes) -> Iterator[Any]:
    return (each for each in listing(takes) if isinstance(each[0], kind))


def _flights(pool: Pool, catalog: Catalog, takes: Takes) -> Iterator[Flight]:
    """What the workers list of those devices; one that has ended lists nothing until it is back."""
    for worker in pool.workers:
        taken = [name for name in worker.settings.devices if takes(name)]
        # A worker knows its front alone, and would ask all of its boards for a listing of all.
        whole = len(taken) == len(worker.settings.devices)
        globs = ["*"] if taken and whole else [f"{glob.escape(name)}/*" for name in taken]
        try:
            with worker.connected("") as connection:
                infos = [info for each in globs for info in connection.flights(each.encode())]
        except FastFlightError as error:
            log.warning("a worker's flights are not listed", worker=worker.number, error=str(error))
            continue
        for info in infos:
            given = parse(info.endpoints[0].ticket.ticket, "a worker's flight")
            if given.get("type") in catalog.names:
                schema = info.schema if len(info.schema) else None
                yield (
                    decode(info.endpoints[0].ticket.ticket, catalog),
                    Estimate(schema, info.total_records, info.total_bytes),
                )
