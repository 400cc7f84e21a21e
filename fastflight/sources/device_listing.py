"""`device.listing`: one row per entry of a folder on a device.

A listing that was just read is given again for `KEEP_SECONDS`, and only while nobody has had the device since: to
write, to run code, to reset it, as a bridge's client, or to read. What a program on the board does by itself is missed
for that long. `"interrupt": true` is always carried out.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Iterator

import pyarrow as pa

from fastflight.device import Device, FileEntry, Inventory
from fastflight.service.requests import DeviceListing
from fastflight.service.resolve import ExpiringCache
from fastflight.service.source import AsyncReading, Estimate, Reading, Source, Takes

# What the trailer of a kept listing says.
KEPT = {"kept": True}
SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("modified", pa.timestamp("us", tz="UTC")),
    ]
)


# A page of several panels asks for the same folder in one go.
KEEP_SECONDS = 1.0
# A few folders of each of some devices.
MAX_KEPT_LISTINGS = 64
# Of more, reading them takes longer than this is worth.
MAX_KEPT_ENTRIES = 4096


class DeviceListings:
    """The source of `device.listing` requests."""

    def __init__(self, inventory: Inventory, clock: Callable[[], float] = time.monotonic) -> None:
        self._inventory = inventory
        self._kept: ExpiringCache[tuple[Hashable, pa.RecordBatch]] = ExpiringCache(MAX_KEPT_LISTINGS, clock)

    def source(self) -> Source[DeviceListing]:
        """For the catalog."""
        return Source(DeviceListing, read=self.read, aread=self.aread, describe=self.describe, requests=self.requests)

    def read(self, request: DeviceListing) -> Reading:
        device = self._inventory.device(request.device)
        if (kept := self._just_read(device, request)) is not None:
            return Reading(SCHEMA, summary=lambda: KEPT, first=[kept])
        with device.lease(holder(request), interrupt=request.interrupt) as session:
            rows = batch(session.list(request.path, recursive=request.recursive))
            self._keep(device, request, rows)
        return Reading(SCHEMA, first=[rows])

    async def aread(self, request: DeviceListing) -> AsyncReading:
        device = self._inventory.device(request.device)
        if (kept := self._just_read(device, request)) is not None:
            return AsyncReading(SCHEMA, summary=lambda: KEPT, first=[kept])
        async with device.alease(holder(request), interrupt=request.interrupt) as session:
            rows = batch(await session.list(request.path, recursive=request.recursive))
            self._keep(device, request, rows)
        return AsyncReading(SCHEMA, first=[rows])

    def describe(self, request: DeviceListing) -> Estimate:
        """The schema is the same for all; the device is not asked."""
        self._inventory.device(request.device)
        return Estimate(SCHEMA, keep_seconds=math.inf)

    def requests(self, takes: Takes) -> Iterator[tuple[DeviceListing, Estimate]]:
        """The root folder of every device, with a note where somebody has it, or its line is lost."""
        for device in self._inventory.devices():
            if takes(device.name):
                state = {"busy": device.holder, "trouble": device.trouble}
                note = {key: value for key, value in state.items() if value}
                yield DeviceListing(device=device.name), Estimate(SCHEMA, note=note or None)

    def _just_read(self, device: Device, request: DeviceListing) -> pa.RecordBatch | None:
        """The rows of the same listing, if nothing has happened since."""
        found = None if request.interrupt else self._kept.get(_key(request))
        return found[1] if found is not None and found[0] == _moment(device) else None

    def _keep(self, device: Device, request: DeviceListing, rows: pa.RecordBatch) -> None:
        """To be called by who has the device: nobody else can have changed it yet."""
        if rows.num_rows <= MAX_KEPT_ENTRIES:
            self._kept.put(_key(request), (_moment(device), rows), KEEP_SECONDS)


def _key(request: DeviceListing) -> Hashable:
    return request.device, request.path, request.recursive


def _moment(device: Device) -> Hashable:
    """The same for as long as nobody else has the device, and its line is not lost."""
    return device.turns, device.outages


def batch(entries: list[FileEntry]) -> pa.RecordBatch:
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
    return f"a listing of {request.path} ({request.mode})"
