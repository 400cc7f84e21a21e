"""The hand-over of recorded rows: none is left out and none comes out of order, also when NATS fails meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from fastflight.cluster import publishing
from fastflight.cluster.fleet_copy import FleetCopy
from fastflight.cluster.following import Follower
from fastflight.cluster.publishing import Publisher
from fastflight.cluster.recording_stream import RecordingStream
from fastflight.cluster.shipment import decode
from fastflight.concurrency import off_loop
from fastflight.errors import TransportError
from fastflight.log import Log, Store
from tests.log.rows import SCHEMA, batch_of, checked, missing, numbers

# More than the hand-over of rows that are on the disk already takes.
DRAIN_SECONDS = 30.0


class ModelStream:
    """Adds messages to a copy. With `fails`, says of some that they were not stored, which may be true or not."""

    def __init__(self, copy: FleetCopy, fails: bool) -> None:
        self._copy = copy
        self._fails = fails
        self.messages = 0

    async def sync(self) -> None:
        pass

    async def publish(self, server: str, message: bytes) -> None:
        self.messages += 1
        shipment = decode(message)
        assert shipment is not None and shipment.server == server
        number = self.messages % 5 if self._fails else 0
        if number != 2:
            await off_loop(self._copy.add, [shipment])
        if number in (2, 3):
            raise TransportError("no answer", where="NATS")


def _publisher(buffer: Store, stream: ModelStream, copy: FleetCopy) -> Publisher:
    return Publisher(buffer, "alpha", cast(RecordingStream, stream), cast(Follower, stream), copy)


@pytest.mark.parametrize("feed_bytes", [0, 500, 1_000_000])
def test_all_rows_are_handed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, feed_bytes: int) -> None:
    monkeypatch.setattr(publishing, "FEED_BYTES", feed_bytes)
    monkeypatch.setattr(publishing, "CHECK_SECONDS", 0.001)
    monkeypatch.setattr(publishing, "RETRY_SECONDS", 0.001)

    async def hand_over(buffer: Store, copy: FleetCopy) -> None:
        await buffer.open("early", SCHEMA).append(batch_of("early", 0, 3))
        publisher = _publisher(buffer, ModelStream(copy, fails=True), copy)
        running = asyncio.ensure_future(publisher.run())
        for turn in range(40):
            for name in ("early", "demo", "other"):
                log = buffer.open(name, SCHEMA)
                first = log.next_seq + (turn % 7 == 3)
                await log.append(batch_of(name, first, 2), first=first, paused_until=first if turn % 2 else 0)
        assert await publisher.drain(buffer.names(), DRAIN_SECONDS)
        assert not any(publisher.waiting(name) for name in buffer.names())
        running.cancel()
        await asyncio.wait({running})

    with Store(tmp_path / "buffer", sync_ms=0) as buffer, Store(tmp_path / "copy", sync_ms=0) as store:
        copy = FleetCopy(store)
        asyncio.run(hand_over(buffer, copy))
        for name in buffer.names():
            recording = copy.find(name)
            assert recording is not None
            here, there = list(checked(name, buffer.log(name).read())), list(checked(name, recording.read()))
            assert numbers(there) == numbers(here) and missing(there) == missing(here)


def test_new_rows_are_not_read_from_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(log: Log, *_: object) -> None:
        raise AssertionError(f"the rows of {log.name} were read")

    async def hand_over(buffer: Store, copy: FleetCopy) -> None:
        stream = ModelStream(copy, fails=False)
        publisher = _publisher(buffer, stream, copy)
        running = asyncio.ensure_future(publisher.run())
        await buffer.open("demo", SCHEMA).append(batch_of("demo", 5, 2), first=5, paused_until=5)
        assert await publisher.drain(["demo"], DRAIN_SECONDS) and stream.messages == 1
        running.cancel()
        await asyncio.wait({running})

    monkeypatch.setattr(Log, "read", read)
    with Store(tmp_path / "buffer", sync_ms=0) as buffer, Store(tmp_path / "copy", sync_ms=0) as store:
        asyncio.run(hand_over(buffer, FleetCopy(store)))
