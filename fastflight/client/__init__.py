"""A fastflight server's devices, from Python: rows in, rows out, and no device code."""

from fastflight.client.aio import AsyncFastFlightClient, AsyncRowStream
from fastflight.client.call import DEFAULT_LOCATION, Device, Digest, Entry, Written
from fastflight.client.client import FastFlightClient
from fastflight.client.progress import Report
from fastflight.client.stream import RowStream

__all__ = [
    "DEFAULT_LOCATION",
    "AsyncFastFlightClient",
    "AsyncRowStream",
    "Device",
    "Digest",
    "Entry",
    "FastFlightClient",
    "Report",
    "RowStream",
    "Written",
]
