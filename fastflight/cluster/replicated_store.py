"""Recordings in JetStream, with the methods of `Store` and `Log` of the embedded engine (`fastflight.log`).

    store = ReplicatedStore(connection, shard)           # the shard whose loop `connection` is used on
    log = store.open("weather", schema)
    log.append(batch).result()                           # returns when a quorum has the rows on its disks
    for item in log.read(Range(from_seq=100)): ...
    store.compact(folder)                                # older rows to Parquet, in JetStream as well

`append` returns a ticket at once, as in the embedded engine. Methods that wait for NATS must not be called on the loop
of the shard. They raise `TransportError` if NATS cannot be used.
"""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from fastflight.cluster.compaction import LIMITS, Compaction, CompactionLimits
from fastflight.cluster.connection import ClusterConnection
from fastflight.cluster.log_stream import LogStream, State
from fastflight.cluster.part_bucket import PartBucket
from fastflight.cluster.replicated_log import ReplicatedLog
from fastflight.cluster.replicated_parts import ReplicatedParts
from fastflight.concurrency import Shard
from fastflight.errors import RequestError, Stopped, UnknownName, nearest
from fastflight.log import Retention
from fastflight.log.committer import Commit
from fastflight.log.content import MAX_NAME_BYTES, Codec, LogState
from fastflight.log.retention import RetentionCheck, end_of_first

T = TypeVar("T")

# Retention deletes again when what it has deleted since would be more than this part of what is kept.
SWEEP_PART = 64


class ReplicatedStore:
    """The logs in JetStream. Close it before its shard."""

    def __init__(
        self,
        connection: ClusterConnection,
        shard: Shard,
        fleet: str = "fleet",
        *,
        replicas: int = 1,
        retention: Retention | None = None,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        """`fleet` is whose recordings these are. A new stream has `replicas` copies of each message."""
        self.stream = LogStream(connection, fleet, replicas)
        self.parts = ReplicatedParts(PartBucket(connection, fleet, replicas), self.stream, self.call)
        # Guards the queues of all logs, and what follows.
        self.lock = threading.RLock()
        self.waiting_bytes = 0
        # The append that was queued last.
        self.newest: Commit | None = None
        self._shard = shard
        self._logs: dict[str, ReplicatedLog] = {}
        self._retention = RetentionCheck(retention or Retention(), clock, ticks)
        self._compaction = Compaction(self, ticks)
        self._closed = False

    def names(self) -> list[str]:
        """Return the names of all logs, sorted."""
        return self.call(self.stream.names())

    def open(self, name: str, schema: pa.Schema, *, token: int = 0) -> ReplicatedLog:
        """As `Store.open`. `token` is the fencing token of the lease that this server holds; it never gets smaller."""
        return self.call(self.aopen(name, schema, token=token))

    async def aopen(self, name: str, schema: pa.Schema, *, token: int = 0) -> ReplicatedLog:
        """As `open`, on the loop of the connection."""
        if not name or len(name.encode()) > MAX_NAME_BYTES:
            raise RequestError("a log's name has 1 to 255 bytes", where=name[:MAX_NAME_BYTES])
        log = self._logs.get(name)
        if log is None or log.generation != self.stream.states.generation:
            following = 0 if log is None else log.writer.acknowledged
            state = await self._create(LogState(0, following, name, Codec(schema).message))
            log = self._logs.setdefault(name, ReplicatedLog(self, name, state))
            log.generation = self.stream.states.generation
        if not log.schema.equals(schema, check_metadata=True):
            raise RequestError("the log has another schema", where=name, hint="Give the new rows a log of their own")
        log.writer.token = max(log.writer.token, token)
        return log

    async def _create(self, initial: LogState) -> State:
        while (state := await self.stream.state(initial.name)) is None:
            await self.stream.put_state(initial, 0)
        return state

    def log(self, name: str) -> ReplicatedLog:
        """As `Store.log`."""
        log = self.find(name)
        if log is None:
            raise UnknownName("no such recording", where=name, hint=nearest(name, self.names()))
        return log

    def find(self, name: str) -> ReplicatedLog | None:
        """As `Store.find`."""
        if name in self._logs:
            return self._logs[name]
        state = self.call(self.stream.state(name))
        return None if state is None else self._logs.setdefault(name, ReplicatedLog(self, name, state))

    def sweep(self) -> int:
        """Delete the oldest rows that exceed the retention. Any server may call it.

        Return about how many parts and messages were deleted.
        """
        self._retention.update()
        bounds = self.call(self.stream.bounds())
        max_bytes, oldest = self._retention.max_bytes, self._retention.oldest()
        parts = self.parts.all()
        kept = sum(part.size for part in parts)
        swept = 0
        for at, part in enumerate(parts):
            # The rows of a part are older than the parts after it, and than the oldest message.
            created = [each.index.created for each in parts[at:]]
            created.append(self.call(self.stream.time_of(bounds.first)))
            old = oldest is not None and end_of_first(created, self._retention.now) < oldest * 1e6
            if not old and (max_bytes is None or kept + bounds.bytes <= max_bytes):
                break
            self.parts.remove(part)
            kept -= part.size
            swept += 1
        until = bounds.first
        if swept == len(parts) and max_bytes is not None and bounds.bytes > max_bytes:
            until += int((bounds.last - bounds.first + 1) * (bounds.bytes - max_bytes) / bounds.bytes) + 1
        if swept == len(parts) and oldest is not None:
            until = max(until, self.call(self.stream.first_since(oldest)))
        if until - bounds.first > (bounds.last - bounds.first) // SWEEP_PART:
            swept += (until - bounds.first) * self.call(self.stream.delete_before(until))
        return swept

    def compact(
        self, folder: Path, on_batch: Callable[[], object] = lambda: None, limits: CompactionLimits = LIMITS
    ) -> list[str]:
        """Convert the oldest messages to Parquet, which replaces them, and return the names of the new parts.

        Any server may call it, again and again: while another one does it, nothing happens. `folder` is used meanwhile
        and deleted; its disk needs room for two parts. `on_batch` is called often; it may sleep, or raise to give up.
        `StorageError` if messages are damaged: then they and all later ones stay.
        """
        return self._compaction.run(folder, on_batch, limits)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work`, which runs on the loop of the connection."""
        return self.submit(work).result()

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run `work` on the loop of the connection, and return its future."""
        return self._shard.submit(work)

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """As `submit`, and cheaper, for a caller that needs no result."""
        self._shard.spawn(work, lambda: None)

    def check(self) -> None:
        """Raise `Stopped` if the store is closed."""
        if self._closed:
            raise Stopped("the recording log is closed", hint="Ask again when it is open")

    def close(self) -> None:
        """Wait for the appends that wait. `append` raises `Stopped` from then on."""
        with self.lock:
            self._closed = True
            waiting = [log.writer.last_commit for log in self._logs.values()]
        for commit in waiting:
            if commit is not None:
                commit.wait(None)

    def __enter__(self) -> ReplicatedStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
