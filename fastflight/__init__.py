"""fastflight: MicroPython devices as tables, over Apache Arrow Flight.

`FastFlightClient` and `AsyncFastFlightClient` read and write a server's devices; `read_request` and `read_parallel` of
theirs take the requests that are here. All are imported on first use: a process that needs none of them, such as
`fastflight --help` or a simulated board, starts without loading Arrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastflight.client import AsyncFastFlightClient, Credentials, FastFlightClient
    from fastflight.service.requests import (
        DeviceExec,
        DeviceFile,
        DeviceListing,
        DeviceSession,
        FleetFile,
        Mock,
        Recording,
    )

__all__ = [
    "AsyncFastFlightClient",
    "Credentials",
    "DeviceExec",
    "DeviceFile",
    "DeviceListing",
    "DeviceSession",
    "FastFlightClient",
    "FleetFile",
    "Mock",
    "Recording",
    "__version__",
]

__version__ = "0.1.0"

_CLIENT = ("AsyncFastFlightClient", "Credentials", "FastFlightClient")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'fastflight' has no attribute {name!r}")
    if name in _CLIENT:
        from fastflight import client

        return getattr(client, name)
    from fastflight.service import requests

    return getattr(requests, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
