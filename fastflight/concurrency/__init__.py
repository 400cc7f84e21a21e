"""Event loops in threads (shards), and the channels, locks and iterators that connect threads and loops."""

from __future__ import annotations

from fastflight.concurrency.ahead import across, iterate_in_thread, read_ahead
from fastflight.concurrency.channel import Cancelled, Channel, failure_of
from fastflight.concurrency.exclusive import Exclusive
from fastflight.concurrency.offload import off_loop
from fastflight.concurrency.shard import Shard
from fastflight.concurrency.shards import Shards

__all__ = [
    "Cancelled",
    "Channel",
    "Exclusive",
    "Shard",
    "Shards",
    "across",
    "failure_of",
    "iterate_in_thread",
    "read_ahead",
    "off_loop",
]
