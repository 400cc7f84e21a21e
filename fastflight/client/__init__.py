"""Python clients of a fastflight server, sync and async. They hold no code that talks to boards.

All names are imported on first use: a process that makes one call starts without what other calls need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastflight.lazy import exports

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastflight.client.aio import AsyncFastFlightClient, AsyncInteraction
    from fastflight.client.answers import DEFAULT_LOCATION, Copied, CopiedTree, Device, Digest, Entry, Recorded, Written
    from fastflight.client.client import FastFlightClient
    from fastflight.client.credentials import Credentials, traced
    from fastflight.client.endpoint import Endpoint
    from fastflight.client.interaction import Interaction, ReadTimeout
    from fastflight.client.parallel import ParallelRowStream
    from fastflight.client.progress import Report, Resuming, TreeReport
    from fastflight.client.stream import IncompleteWarning, RowStream
    from fastflight.client.stream_aio import AsyncRowStream
    from fastflight.gap import Gap

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
    "Endpoint",
    "Entry",
    "FastFlightClient",
    "Gap",
    "IncompleteWarning",
    "Interaction",
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

__getattr__: Callable[[str], Any] = exports(
    __name__,
    {
        "aio": ("AsyncFastFlightClient", "AsyncInteraction"),
        "answers": ("DEFAULT_LOCATION", "Copied", "CopiedTree", "Device", "Digest", "Entry", "Recorded", "Written"),
        "client": ("FastFlightClient",),
        "credentials": ("Credentials", "traced"),
        "endpoint": ("Endpoint",),
        "interaction": ("Interaction", "ReadTimeout"),
        "parallel": ("ParallelRowStream",),
        "progress": ("Report", "Resuming", "TreeReport"),
        "stream": ("Gap", "IncompleteWarning", "RowStream"),
        "stream_aio": ("AsyncRowStream",),
    },
)
