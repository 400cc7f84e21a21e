"""Python clients of a fastflight server, sync and async. They hold no code that talks to boards.

All names are imported on first use: a process that makes one call starts without what other calls need.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastflight.client.aio import AsyncFastFlightClient
    from fastflight.client.call import DEFAULT_LOCATION, Copied, CopiedTree, Device, Digest, Entry, Recorded, Written
    from fastflight.client.client import FastFlightClient
    from fastflight.client.credentials import Credentials, traced
    from fastflight.client.interaction import Interaction, ReadTimeout
    from fastflight.client.interaction_aio import AsyncInteraction
    from fastflight.client.parallel import ParallelRowStream
    from fastflight.client.progress import Report, Resuming, TreeReport
    from fastflight.client.stream import Missed, RowStream
    from fastflight.client.stream_aio import AsyncRowStream
    from fastflight.errors import IncompleteWarning

__all__ = [
    "DEFAULT_LOCATION",
    "AsyncFastFlightClient",
    "AsyncInteraction",
    "AsyncRowStream",
    "Copied",
    "CopiedTree",
    "Credentials",
    "Device",
    "Digest",
    "Entry",
    "FastFlightClient",
    "IncompleteWarning",
    "Interaction",
    "Missed",
    "ParallelRowStream",
    "ReadTimeout",
    "Recorded",
    "Report",
    "Resuming",
    "RowStream",
    "TreeReport",
    "Written",
    "traced",
]

_MODULES = {
    "client.aio": ("AsyncFastFlightClient",),
    "client.call": ("DEFAULT_LOCATION", "Copied", "CopiedTree", "Device", "Digest", "Entry", "Recorded", "Written"),
    "client.client": ("FastFlightClient",),
    "client.credentials": ("Credentials", "traced"),
    "client.interaction": ("Interaction", "ReadTimeout"),
    "client.interaction_aio": ("AsyncInteraction",),
    "client.parallel": ("ParallelRowStream",),
    "client.progress": ("Report", "Resuming", "TreeReport"),
    "client.stream": ("Missed", "RowStream"),
    "client.stream_aio": ("AsyncRowStream",),
    "errors": ("IncompleteWarning",),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(f"fastflight.{module}"), name)
    raise AttributeError(f"module 'fastflight.client' has no attribute {name!r}")
