"""Devices: an `Inventory` holds the `Device`s of a process; `Device.lease` gives a `Session` with the board.

A `Session` reads, writes and lists files, runs code and resets the board; an `AsyncSession` does so on an event loop.
"""

from fastflight.device.capabilities import Capabilities, DeviceInfo
from fastflight.device.device import Device
from fastflight.device.inventory import Inventory
from fastflight.device.listing import FileEntry
from fastflight.device.session import AsyncSession, Session
from fastflight.device.transfer.types import (
    FileDigest,
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
    "FileDigest",
    "Inventory",
    "Method",
    "PartialWrite",
    "Resumption",
    "Session",
    "Transfer",
    "WrittenFile",
    "WrittenTree",
]
