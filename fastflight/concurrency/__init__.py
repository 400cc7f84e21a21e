"""The only sync-async adapters: bounded, cancellable, and exact about how things end."""

from fastflight.concurrency.exclusive import Exclusive
from fastflight.concurrency.handin import HandIn
from fastflight.concurrency.handoff import drain
from fastflight.concurrency.offload import off_loop
from fastflight.concurrency.shard import Shard

__all__ = ["Exclusive", "HandIn", "Shard", "drain", "off_loop"]
