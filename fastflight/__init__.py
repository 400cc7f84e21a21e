"""fastflight: MicroPython devices as tables, over Apache Arrow Flight.

`FastFlightClient` and `AsyncFastFlightClient` read and write a server's devices. They are imported on first use, so
that processes which need neither (the simulated board) start without loading Arrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastflight.client import AsyncFastFlightClient, FastFlightClient

__all__ = ["AsyncFastFlightClient", "FastFlightClient", "__version__"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in ("AsyncFastFlightClient", "FastFlightClient"):
        from fastflight import client

        return getattr(client, name)
    raise AttributeError(f"module 'fastflight' has no attribute {name!r}")
