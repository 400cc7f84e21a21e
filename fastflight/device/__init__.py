"""Boards: an `Inventory` holds the `Device`s of a process, and a lease of a device gives a `Session` with its board."""

from fastflight.device.capabilities import Capabilities, DeviceInfo
from fastflight.device.device import Device
from fastflight.device.inventory import Inventory
from fastflight.device.listing import FileEntry
from fastflight.device.session import AsyncSession, Session
from fastflight.device.transfer.types import (
    Hashed,
    Method,
    PartialWrite,
    Resumption,
    Transfer,
    WrittenFile,
    WrittenTree,
)

__all__ = [
    "AsyncSession",
    "Capabilities",
    "Device",
    "DeviceInfo",
    "FileEntry",
    "Hashed",
    "Inventory",
    "Method",
    "PartialWrite",
    "Resumption",
    "Session",
    "Transfer",
    "WrittenFile",
    "WrittenTree",
]
