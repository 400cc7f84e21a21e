"""A fastflight server's devices, from Python: rows in, rows out, and no device code."""

from fastflight.client.call import DEFAULT_LOCATION, Device, Entry
from fastflight.client.client import FastFlightClient
from fastflight.client.progress import Report
from fastflight.client.stream import RowStream
from fastflight.client.upload import Written

__all__ = [
    "DEFAULT_LOCATION",
    "Device",
    "Entry",
    "FastFlightClient",
    "Report",
    "RowStream",
    "Written",
]
