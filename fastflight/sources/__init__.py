"""The data sources of the server: device files, folder listings, code output, live traffic, recordings.

Each module implements one request type as a subclass of `service.source.DataSource`. `device_sources` and
`recording_source` build these for the catalog; `device_actions` and `recording_actions` build the matching table of
actions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from fastflight.device import Inventory
from fastflight.runtime.admission import IDLE_SECONDS
from fastflight.service import DataSource
from fastflight.service.requests import Recording
from fastflight.sources.actions import device_actions
from fastflight.sources.device_exec import DeviceExecs
from fastflight.sources.device_file import DeviceFiles
from fastflight.sources.device_listing import DeviceListings
from fastflight.sources.device_session import DeviceSessions
from fastflight.sources.device_tree import DeviceTrees
from fastflight.sources.file_cache import FileCache
from fastflight.sources.fleet_file import FleetFiles
from fastflight.sources.live_rows import LiveLayouts
from fastflight.sources.recording import RecordingSource
from fastflight.sources.recording_actions import recording_actions
from fastflight.sources.recordings import NoRecordings, Recordings
from fastflight.sources.row_layout import RowLayout
from fastflight.sources.typed_rows import TypedRows

__all__ = [
    "DeviceFiles",
    "FileCache",
    "LiveLayouts",
    "Recordings",
    "RowLayout",
    "TypedRows",
    "device_actions",
    "device_sources",
    "recording_actions",
    "recording_source",
]


def device_sources(
    inventory: Inventory,
    idle_seconds: float = IDLE_SECONDS,
    device_files: DeviceFiles | None = None,
    *,
    names: Callable[[], Collection[str]] | None = None,
    passed_on: Callable[[DataSource[Any]], DataSource[Any]] | None = None,
    layouts: LiveLayouts | None = None,
) -> list[DataSource[Any]]:
    """Return the sources of all request types that read or write devices.

    An exchange that has sent nothing for `idle_seconds` loses its device as soon as another request asks for it.
    `device_files` replaces the source of files, as for one with a cache of its own. If other servers have devices as
    well, `names` returns all devices, and `passed_on` returns a source which passes the requests for theirs on to them.
    `layouts` finds the layouts of typed rows.
    """
    names = names or inventory.names
    passed_on = passed_on or _unchanged
    device_files = device_files or DeviceFiles(inventory)
    files = passed_on(device_files)
    fleet = FleetFiles(files, names, inventory.shard_of, files.requests)
    return [
        files,
        passed_on(fleet),
        passed_on(DeviceTrees(inventory)),
        passed_on(DeviceListings(inventory, device_files.listings)),
        passed_on(DeviceExecs(inventory)),
        passed_on(DeviceSessions(inventory, idle_seconds, layouts)),
    ]


def recording_source(recordings: Recordings | None, typed: TypedRows | None = None) -> DataSource[Recording]:
    """Return the source of `recording` requests. With None it lists nothing and refuses every name."""
    listed = None if recordings is None else recordings.listed
    logs = recordings or NoRecordings()
    return RecordingSource(logs, (typed or TypedRows(logs.log)).parser, listed)


def _unchanged(source: DataSource[Any]) -> DataSource[Any]:
    return source
