"""What the server offers: the files, trees, listings, code and live traffic of devices, and the benchmark table."""

from __future__ import annotations

from typing import Any

from fastflight.device import Inventory
from fastflight.service import Source
from fastflight.sources.actions import device_actions
from fastflight.sources.device_exec import DeviceExecs
from fastflight.sources.device_file import DeviceFiles
from fastflight.sources.device_listing import DeviceListings
from fastflight.sources.device_session import DeviceSessions
from fastflight.sources.device_tree import DeviceTrees

__all__ = ["device_actions", "device_sources"]


def device_sources(inventory: Inventory) -> list[Source[Any]]:
    """The sources of all that can be asked of the devices of `inventory`."""
    return [
        DeviceFiles(inventory).source(),
        DeviceTrees(inventory).source(),
        DeviceListings(inventory).source(),
        DeviceExecs(inventory).source(),
        DeviceSessions(inventory).source(),
    ]
