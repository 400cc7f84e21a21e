"""fastflight: MicroPython devices as tables, over Apache Arrow Flight.

`FastFlightClient` and `AsyncFastFlightClient` read and write a server's devices; `read_request` and `read_parallel` of
theirs take the requests that are here. `Source` makes a data service of your own functions, and `create_server` serves
it. All are imported on first use: a process that needs none of them, such as `fastflight --help` or a simulated board,
starts without loading Arrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastflight.lazy import exports

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastflight.app.compose import create_server
    from fastflight.client import AsyncFastFlightClient, Credentials, FastFlightClient
    from fastflight.service.own_source import Source
    from fastflight.service.requests import (
        DeviceExec,
        DeviceFile,
        DeviceListing,
        DeviceSession,
        FleetFile,
        Recording,
        SourceRequest,
    )
    from fastflight.service.source import Estimate

__all__ = [
    "AsyncFastFlightClient",
    "Credentials",
    "DeviceExec",
    "DeviceFile",
    "DeviceListing",
    "DeviceSession",
    "Estimate",
    "FastFlightClient",
    "FleetFile",
    "Recording",
    "Source",
    "SourceRequest",
    "__version__",
    "create_server",
]

__version__ = "0.1.0"

_MODULES = {
    "app.compose": ("create_server",),
    "client": ("AsyncFastFlightClient", "Credentials", "FastFlightClient"),
    "service.own_source": ("Source",),
    "service.requests": (
        "DeviceExec",
        "DeviceFile",
        "DeviceListing",
        "DeviceSession",
        "FleetFile",
        "Recording",
        "SourceRequest",
    ),
    "service.source": ("Estimate",),
}

__getattr__: Callable[[str], Any] = exports(__name__, _MODULES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
