"""Boards: sessions with one owner at a time, files, and the inventory of a process."""

from fastflight.device.capabilities import Capabilities
from fastflight.device.device import Device
from fastflight.device.entry import DeviceInfo, Entry, Written
from fastflight.device.inventory import Inventory
from fastflight.device.session import AsyncSession, Session
from fastflight.device.transfer import Hashed, Method, Part, Resumption, Transfer, WrittenTree

__all__ = [
    "AsyncSession",
    "Capabilities",
    "Device",
    "DeviceInfo",
    "Entry",
    "Hashed",
    "Inventory",
    "Method",
    "Part",
    "Resumption",
    "Session",
    "Transfer",
    "Written",
    "WrittenTree",
]
