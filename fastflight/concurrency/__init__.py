"""The only sync-async adapters: bounded, cancellable, and exact about how things end."""

from fastflight.concurrency.exclusive import Exclusive
from fastflight.concurrency.failure import failure_of
from fastflight.concurrency.governor import Governor
from fastflight.concurrency.handin import HandIn
from fastflight.concurrency.handoff import Drained, adrain, drain, drain_lots
from fastflight.concurrency.offload import off_loop
from fastflight.concurrency.shard import Shard
from fastflight.concurrency.shards import Shards

__all__ = [
    "Drained",
    "Exclusive",
    "Governor",
    "HandIn",
    "Shard",
    "Shards",
    "adrain",
    "drain",
    "drain_lots",
    "failure_of",
    "off_loop",
]
