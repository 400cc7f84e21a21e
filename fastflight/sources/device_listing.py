"""`device.listing`: one row per entry of a folder on a device.

A listing is cached for a second (`board_listings`), or until somebody may have changed the files. Changes that the
board's own program makes without a word may stay unseen for that time. A request with `"interrupt": true` bypasses the
cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from fastflight.device import Device, FileEntry, Inventory
from fastflight.service.requests import DeviceListing
from fastflight.service.source import Estimate, Reading, Takes
from fastflight.sources.board_listings import BoardListings, Entries, version_of
from fastflight.sources.modes import BoardSource, Mode
from fastflight.transport.url import LINES

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


class DeviceListings(BoardSource[DeviceListing]):
    """The source of `device.listing` requests."""

    request = DeviceListing

    def __init__(self, inventory: Inventory, listings: BoardListings | None = None) -> None:
        super().__init__(inventory)
        self._listings = listings or BoardListings()

    async def _open(self, request: DeviceListing, mode: Mode) -> Reading:
        device = self._inventory.device(request.device)
        if (cached := self._cached(device, request)) is not None:
            return Reading(SCHEMA, summary=lambda: CACHED_NOTE, first=[batch(cached)])
        async with mode.lease(device, holder(request), interrupt=request.interrupt) as session:
            version = version_of(device)
            entries = await session.list(request.path, recursive=request.recursive)
        self._listings.store(device, (request.path, request.recursive), version, entries)
        return Reading(SCHEMA, first=[batch(entries)])

    def describe(self, request: DeviceListing) -> Estimate:
        """Return the schema, which is always the same. The device is not contacted."""
        self._inventory.device(request.device)
        return Estimate(SCHEMA)

    def requests(self, takes: Takes) -> Iterator[tuple[DeviceListing, Estimate]]:
        """Yield a request for the root folder of every device that may have files.

        The note says if it is held, if its line is lost, and if its files were not listed before (`BoardListings`).
        """
        for device in self._inventory.devices():
            if takes(device.name) and device.kind != LINES:
                state = {"busy": device.holder, "trouble": device.trouble}
                note = {**{key: value for key, value in state.items() if value}, **self._listings.missing(device)}
                yield DeviceListing(device=device.name), Estimate(SCHEMA, note=note or None)

    def _cached(self, device: Device, request: DeviceListing) -> Entries | None:
        return None if request.interrupt else self._listings.find(device, (request.path, request.recursive))


def batch(entries: Sequence[FileEntry]) -> pa.RecordBatch:
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
