"""A group of shards: event loops, each in a thread of its own, with one watchdog for all of them.

`of(name)` returns the same shard for the same name, in every process with the same number of shards. A device, its
requests and its bridge use the device's name, so they share a shard. `of(None)` returns the shard with the lowest load.
An owner has a shard that nobody else gets: its code may block it.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any

from fastflight.concurrency.loops import kind_of
from fastflight.concurrency.shard import CLOSE_SECONDS, Shard
from fastflight.concurrency.watchdog import Watchdog


class Shards:
    """`count` shards, named `name`-0 and so on. Start them, get one with `of`, close them; also a context manager."""

    def __init__(
        self,
        count: int = 1,
        name: str = "shard",
        *,
        owners: Iterable[str] = (),
    ) -> None:
        if count < 1:
            raise ValueError("a group of shards has at least one")
        self._shared = tuple(Shard(f"{name}-{number}") for number in range(count))
        self._owned = {owner: Shard(owner, owner=owner) for owner in owners}
        self._shards = (*self._shared, *self._owned.values())
        self._watchdog = Watchdog(self._shards, f"{name}-watchdog")

    def of(self, name: str | None) -> Shard:
        """Return the shard for `name`; for None, the one with the lowest load, of those without an owner."""
        if name is None:
            return min(self._shared, key=lambda shard: shard.load)
        if (own := self._owned.get(name)) is not None:
            return own
        # Python's own hash differs from process to process.
        digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
        return self._shared[int.from_bytes(digest) % len(self._shared)]

    def stats(self) -> list[dict[str, Any]]:
        """Return for each shard: name, kind of loop, streams, tasks, last and longest lag, and whether it is stuck."""
        return [
            {
                "name": shard.name,
                "loop": kind_of(shard.loop),
                "streams": shard.load,
                "tasks": shard.tasks(),
                **self._watchdog.stats(shard),
            }
            for shard in self._shards
        ]

    def start(self) -> Shards:
        """Start all threads. Returns self."""
        for shard in self._shards:
            shard.start()
        self._watchdog.start()
        return self

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Close all shards at once, as `Shard.close` does: the tasks of each have `timeout` seconds to end."""
        self._watchdog.close()
        deadline = time.monotonic() + 2 * timeout
        for shard in self._shards:
            shard.stop(timeout)
        for shard in self._shards:
            if not shard.blocked:
                shard.join(max(0.0, deadline - time.monotonic()))

    def __iter__(self) -> Iterator[Shard]:
        return iter(self._shards)

    def __len__(self) -> int:
        return len(self._shards)

    def __enter__(self) -> Shards:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
