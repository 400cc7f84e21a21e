"""Python clients of a fastflight server, sync and async. They hold no code that talks to boards."""

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
