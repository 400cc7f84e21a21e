"""Event loops in threads (shards), and the channels, locks and iterators that connect threads and loops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastflight.concurrency.ahead import across, lots_ahead
from fastflight.concurrency.channel import Cancelled, Channel, failure_of
from fastflight.concurrency.exclusive import Exclusive
from fastflight.concurrency.offload import off_loop
from fastflight.concurrency.shard import Shard

if TYPE_CHECKING:
    from fastflight.concurrency.shards import Shards

__all__ = [
    "Cancelled",
    "Channel",
    "Exclusive",
    "Shard",
    "Shards",
    "across",
    "failure_of",
    "lots_ahead",
    "off_loop",
]


def __getattr__(name: str) -> Any:
    if name == "Shards":  # imported on first use: it loads structlog, which clients do not need
        from fastflight.concurrency.shards import Shards

        return Shards
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
