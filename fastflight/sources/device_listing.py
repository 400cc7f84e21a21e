"""`device.listing`: one row per entry of a folder on a device."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterator

import pyarrow as pa

from fastflight.device import Entry, Inventory
from fastflight.service.requests import DeviceListing
from fastflight.service.source import AsyncReading, Estimate, Reading, Source

SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("modified", pa.timestamp("us", tz="UTC")),
    ]
)


class DeviceListings:
    """The source of `device.listing` requests."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory

    def source(self) -> Source[DeviceListing]:
        """For the catalog."""
        return Source(DeviceListing, read=self.read, aread=self.aread, describe=self.describe, requests=self.requests)

    def read(self, request: DeviceListing) -> Reading:
        device = self._inventory.device(request.device)
        with device.lease(holder(request), interrupt=request.interrupt) as session:
            entries = session.list(request.path, recursive=request.recursive)
        return Reading(SCHEMA, iter([batch(entries)]))

    async def aread(self, request: DeviceListing) -> AsyncReading:
        device = self._inventory.device(request.device)
        async with device.alease(holder(request), interrupt=request.interrupt) as session:
            entries = await session.list(request.path, recursive=request.recursive)
        return AsyncReading(SCHEMA, _single(batch(entries)))

    def describe(self, request: DeviceListing) -> Estimate:
        """The schema is the same for all; the device is not asked."""
        self._inventory.device(request.device)
        return Estimate(SCHEMA, keep_seconds=math.inf)

    def requests(self) -> Iterator[tuple[DeviceListing, Estimate]]:
        """The root folder of every device."""
        for name in self._inventory.names():
            yield DeviceListing(device=name), Estimate(SCHEMA)


def batch(entries: list[Entry]) -> pa.RecordBatch:
    """Entries as rows of `SCHEMA`."""
    microseconds = [None if entry.modified is None else round(entry.modified * 1_000_000) for entry in entries]
    return pa.record_batch(
        [
            pa.array([entry.path for entry in entries], pa.string()),
            pa.array([entry.kind for entry in entries], pa.string()),
            pa.array([entry.size for entry in entries], pa.int64()),
            pa.array(microseconds, pa.timestamp("us", tz="UTC")),
        ],
        schema=SCHEMA,
    )


def holder(request: DeviceListing) -> str:
    """What others are told while the request has the device."""
    return f"a {request.mode} listing of {request.path}"


async def _single(only: pa.RecordBatch) -> AsyncIterator[pa.RecordBatch]:
    yield only
