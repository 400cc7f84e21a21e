"""`device.listing`: one row per entry of a folder on a device.

A listing is cached for `CACHE_SECONDS`, but only until anyone else takes the device, for whatever purpose: reading,
writing, running code, a reset, or a bridge. Changes that the board's own program makes may therefore stay unseen for
that time. A request with `"interrupt": true` bypasses the cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator

import pyarrow as pa

from fastflight.device import Device, FileEntry, Inventory
from fastflight.service.requests import DeviceListing
from fastflight.service.resolve import ExpiringCache
from fastflight.service.source import AsyncReading, Estimate, Reading, SourceFunctions, Takes

# Added to the trailer of a cached listing.
CACHED_NOTE = {"kept": True}
SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("modified", pa.timestamp("us", tz="UTC")),
    ]
)


# Long enough for a page whose panels ask for the same folder at the same time.
CACHE_SECONDS = 1.0
# A few folders of each of some devices.
MAX_CACHED_LISTINGS = 64
# Larger listings are not cached: reading one takes so long that a second of caching gains little.
MAX_CACHED_ENTRIES = 4096


class DeviceListings:
    """The source of `device.listing` requests."""

    def __init__(self, inventory: Inventory, clock: Callable[[], float] = time.monotonic) -> None:
        self._inventory = inventory
        self._cache: ExpiringCache[tuple[Hashable, pa.RecordBatch]] = ExpiringCache(MAX_CACHED_LISTINGS, clock)

    def source(self) -> SourceFunctions[DeviceListing]:
        """Return the request type and the functions that serve it, for the catalog."""
        return SourceFunctions(
            DeviceListing, read=self.read, aread=self.aread, describe=self.describe, requests=self.requests
        )

    def read(self, request: DeviceListing) -> Reading:
        device = self._inventory.device(request.device)
        if (cached := self._cached(device, request)) is not None:
            return Reading(SCHEMA, summary=lambda: CACHED_NOTE, first=[cached])
        with device.lease(holder(request), interrupt=request.interrupt) as session:
            rows = batch(session.list(request.path, recursive=request.recursive))
            self._store(device, request, rows)
        return Reading(SCHEMA, first=[rows])

    async def aread(self, request: DeviceListing) -> AsyncReading:
        device = self._inventory.device(request.device)
        if (cached := self._cached(device, request)) is not None:
            return AsyncReading(SCHEMA, summary=lambda: CACHED_NOTE, first=[cached])
        async with device.alease(holder(request), interrupt=request.interrupt) as session:
            rows = batch(await session.list(request.path, recursive=request.recursive))
            self._store(device, request, rows)
        return AsyncReading(SCHEMA, first=[rows])

    def describe(self, request: DeviceListing) -> Estimate:
        """Return the schema, which is always the same. The device is not contacted."""
        self._inventory.device(request.device)
        return Estimate(SCHEMA)

    def requests(self, takes: Takes) -> Iterator[tuple[DeviceListing, Estimate]]:
        """Yield a request for the root folder of every device, with a note if it is held or its line is lost."""
        for device in self._inventory.devices():
            if takes(device.name):
                state = {"busy": device.holder, "trouble": device.trouble}
                note = {key: value for key, value in state.items() if value}
                yield DeviceListing(device=device.name), Estimate(SCHEMA, note=note or None)

    def _cached(self, device: Device, request: DeviceListing) -> pa.RecordBatch | None:
        """Return the cached rows of the same listing; None if the device has had another owner since."""
        found = None if request.interrupt else self._cache.get(_key(request))
        return found[1] if found is not None and found[0] == _version(device) else None

    def _store(self, device: Device, request: DeviceListing, rows: pa.RecordBatch) -> None:
        """Cache `rows`. Call it while the lease is held, so that no other owner can have changed the files."""
        if rows.num_rows <= MAX_CACHED_ENTRIES:
            self._cache.put(_key(request), (_version(device), rows), CACHE_SECONDS)


def _key(request: DeviceListing) -> Hashable:
    return request.device, request.path, request.recursive


def _version(device: Device) -> Hashable:
    """Return a value that changes when the name gets another device, or the device another owner or a new line."""
    return device, device.turns, device.outages


def batch(entries: list[FileEntry]) -> pa.RecordBatch:
    """Return the entries as rows of `SCHEMA`."""
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
    """Return the name by which the request appears as the device's holder."""
    return f"a listing of {request.path} ({request.mode})"
