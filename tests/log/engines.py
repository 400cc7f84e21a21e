"""The engines of recordings, so that one suite runs over each of them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar, cast

import pytest
from nats.js import errors

from fastflight.app.nats_servers import NatsServers, nats_servers
from fastflight.cluster import part_bucket
from fastflight.cluster.compaction import CompactionLimits
from fastflight.cluster.connection import ClusterConnection, NatsAddress
from fastflight.cluster.log_stream import BUCKET, STREAM
from fastflight.cluster.replicated_log import ReplicatedLog
from fastflight.cluster.replicated_store import ReplicatedStore
from fastflight.concurrency import Shard
from fastflight.log import Retention, Store

P = ParamSpec("P")
T = TypeVar("T")


class Engine(Protocol):
    """Opens the same store again and again. `keeps_times`: its clock says how old rows are."""

    keeps_times: bool

    def store(
        self, retention: Retention | None = None, clock: Callable[[], float] = time.time
    ) -> contextlib.AbstractContextManager[Store]: ...


class EmbeddedEngine:
    """Segments of `segment_bytes` in a folder."""

    keeps_times = True

    def __init__(self, folder: Path, segment_bytes: int) -> None:
        self._folder, self._segment_bytes = folder, segment_bytes

    @contextlib.contextmanager
    def store(self, retention: Retention | None = None, clock: Callable[[], float] = time.time) -> Iterator[Store]:
        size = min(self._segment_bytes, 4000) if retention is not None else self._segment_bytes
        with Store(self._folder, sync_ms=0, segment_bytes=size, retention=retention, clock=clock, ticks=clock) as store:
            yield store


class JetStreamEngine:
    """A stream of `replicas` in NATS servers that run."""

    keeps_times = False

    def __init__(self, nats: NatsServers, shard: Shard, connection: ClusterConnection, replicas: int) -> None:
        self.nats = nats
        self.shard = shard
        self.connection = connection
        self._replicas = replicas

    @classmethod
    @contextlib.contextmanager
    def started(cls, folder: Path, replicas: int = 1) -> Iterator[JetStreamEngine]:
        """Start NATS servers in `folder`, and connect to them."""

        async def opened() -> ClusterConnection:
            connection = ClusterConnection(NatsAddress(nats.urls), "a test")
            connection.open()
            await connection.connected()
            return connection

        with nats_servers(folder, replicas) as nats, Shard("nats") as shard:
            engine = cls(nats, shard, shard.submit(opened()).result(), replicas)
            yield engine
            shard.submit(engine.connection.aclose()).result()

    def clear(self) -> None:
        """Delete all recordings."""

        async def delete() -> None:
            await self.connection.connected()
            for name in (STREAM, f"KV_{BUCKET}", part_bucket.STREAM):
                with contextlib.suppress(errors.NotFoundError):
                    await self.connection.jetstream.purge_stream(name)

        self.shard.submit(delete()).result()

    @contextlib.contextmanager
    def replicated(
        self, retention: Retention | None = None, clock: Callable[[], float] = time.time
    ) -> Iterator[ReplicatedStore]:
        """Open the store, which must then be used as such."""
        with ReplicatedStore(
            self.connection, self.shard, replicas=self._replicas, retention=retention, clock=clock, ticks=clock
        ) as store:
            yield store

    @contextlib.contextmanager
    def store(self, retention: Retention | None = None, clock: Callable[[], float] = time.time) -> Iterator[Store]:
        with self.replicated(retention, clock) as store:
            yield cast(Store, store)


# All messages become a part, at once.
EVERYTHING_NOW = CompactionLimits(due=0, quiet_seconds=0)


class CompactedEngine(JetStreamEngine):
    """As `JetStreamEngine`. What is in the stream is compacted before each look at a log, to one more part."""

    def __init__(self, engine: JetStreamEngine, folder: Path) -> None:
        super().__init__(engine.nats, engine.shard, engine.connection, 1)
        self._folder = folder
        self._compacting = False

    @contextlib.contextmanager
    def replicated(
        self, retention: Retention | None = None, clock: Callable[[], float] = time.time
    ) -> Iterator[ReplicatedStore]:
        def compact_before(look: Callable[P, T]) -> Callable[P, T]:
            def compact_and_look(*arguments: P.args, **named: P.kwargs) -> T:
                if not self._compacting:
                    self._compacting = True
                    store.compact(self._folder / "compacting", limits=EVERYTHING_NOW)
                    assert not store.call(store.stream.bounds()).messages
                    self._compacting = False
                return look(*arguments, **named)

            return compact_and_look

        with super().replicated(retention, clock) as store, pytest.MonkeyPatch.context() as patch:
            for name in ("read", "statistics", "extents"):
                patch.setattr(ReplicatedLog, name, compact_before(getattr(ReplicatedLog, name)))
            yield store
