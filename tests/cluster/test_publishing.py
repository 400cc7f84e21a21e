"""The hand-over of recorded rows: none is left out and none comes out of order, also when NATS fails meanwhile."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest

from fastflight.cluster import publishing
from fastflight.cluster.fleet_copy import FleetCopy
from fastflight.cluster.following import Follower
from fastflight.cluster.publishing import MAX_MESSAGE_BYTES, Publisher, messages_of
from fastflight.cluster.recording_stream import RecordingStream
from fastflight.cluster.shipment import Run, by_device, decode
from fastflight.concurrency import off_loop
from fastflight.errors import StorageError, TransportError
from fastflight.log import Gap, Store, compact
from fastflight.transport.chunk_buffer import Chunk
from tests.cluster.shipments import shipment
from tests.log.rows import batch_of, checked, log_batch, missing, numbers

# More than the hand-over of rows that are on the disk already takes.
DRAIN_SECONDS = 30.0


class ModelStream:
    """Adds messages to a copy. With `fails`, says of some that they were not stored, which may be true or not."""

    def __init__(self, copy: FleetCopy, fails: bool) -> None:
        self._copy = copy
        self._fails = fails
        self.messages = 0
        self.runs: list[tuple[str, int, int]] = []

    async def sync(self) -> None:
        pass

    async def publish(self, server: str, message: bytes) -> None:
        self.messages += 1
        sent = decode(message)
        assert sent is not None and sent.server == server
        self.runs += [(run.device, run.first, run.length) for run in by_device([sent])[1]]
        number = self.messages % 5 if self._fails else 0
        if number != 2:
            await off_loop(self._copy.add, [sent])
        if number in (2, 3):
            raise TransportError("no answer", where="NATS")


def _publisher(buffer: Store, stream: ModelStream, copy: FleetCopy) -> Publisher:
    return Publisher(buffer, "alpha", cast(RecordingStream, stream), cast(Follower, stream), copy)


@pytest.mark.parametrize("step_bytes", [0, 5000, 1_000_000])
def test_all_rows_are_handed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_bytes: int) -> None:
    monkeypatch.setattr(publishing, "STEP_BYTES", step_bytes)
    monkeypatch.setattr(publishing, "CHECK_SECONDS", 0.001)
    monkeypatch.setattr(publishing, "RETRY_SECONDS", 0.001)

    async def hand_over(buffer: Store, copy: FleetCopy) -> None:
        await off_loop(buffer.open("early").append(batch_of("early", 0, 3)).result)
        publisher = _publisher(buffer, ModelStream(copy, fails=True), copy)
        running = asyncio.ensure_future(publisher.run())
        for turn in range(40):
            for name in ("early", "demo", "other"):
                log = buffer.open(name)
                first = log.next_seq + 3 * (turn % 7 == 3)
                paused_until = first - turn % 3 if turn % 2 else 0
                ticket = log.append(batch_of(name, first, 2), first=first, paused_until=paused_until)
                await off_loop(ticket.result)
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


def test_what_an_earlier_process_left_is_handed_over_and_what_is_damaged_is_a_gap(tmp_path: Path) -> None:
    """Also if that process was alone, and so compacted its rows."""

    async def hand_over(buffer: Store, copy: FleetCopy) -> None:
        publisher = _publisher(buffer, ModelStream(copy, fails=False), copy)
        running = asyncio.ensure_future(publisher.run())
        assert await publisher.drain(buffer.names(), DRAIN_SECONDS)
        running.cancel()
        await asyncio.wait({running})

    def append(buffer: Store, first: int) -> None:
        for name in ("a", "b"):
            buffer.open(name).append(batch_of(name, first, 5), first=first).result()

    with Store(tmp_path / "copy", sync_ms=0) as store:
        copy = FleetCopy(store)
        with Store(tmp_path / "buffer", sync_ms=0) as buffer:
            append(buffer, 0)
            asyncio.run(hand_over(buffer, copy))
            for first in (5, 10):
                append(buffer, first)
                compact(buffer, file_bytes=0 if first == 5 else 1 << 20, least=1)
            append(buffer, 15)
            append(buffer, 20)
        path = tmp_path / "buffer" / "recordings.db"
        path.write_bytes(path.read_bytes().replace(b"b:15", b"b:16"))
        with Store(tmp_path / "buffer", sync_ms=0) as buffer:
            asyncio.run(hand_over(buffer, copy))
        for name, damaged in (("a", []), ("b", [(15, 19, "damaged")])):
            recording = copy.find(name)
            assert recording is not None
            items = list(checked(name, recording.read()))
            assert missing(items) == damaged
            assert numbers(items) == {*range(15 if damaged else 20), *range(20, 25)}


def _in_bodies(buffer: Store, *rows: tuple[str, int]) -> None:
    """Append five rows of a device from a number on, each time as a body of its own."""
    for name, first in rows:
        buffer.open(name).append(batch_of(name, first, 5), first=first, paused_until=first).result()


def _handed_over(buffer: Store, copy: FleetCopy, monkeypatch: pytest.MonkeyPatch) -> ModelStream:
    """Hand all rows over, and return the stream that has got them."""
    monkeypatch.setattr(publishing, "CHECK_SECONDS", 0.001)
    monkeypatch.setattr(publishing, "RETRY_SECONDS", 0.001)

    async def hand_over() -> ModelStream:
        stream = ModelStream(copy, fails=False)
        publisher = _publisher(buffer, stream, copy)
        running = asyncio.ensure_future(publisher.run())
        assert await publisher.drain(buffer.names(), DRAIN_SECONDS)
        assert not any(publisher.waiting(name) for name in buffer.names())
        running.cancel()
        await asyncio.wait({running})
        return stream

    return asyncio.run(hand_over())


def _lose(buffer: Store, chosen: int, times: int, error: StorageError | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the body `chosen` be damaged, or raise `error`, when it is read for the first `times`."""
    place = buffer.content.database.positions()[chosen]
    real, left = buffer.content.body, [None] * times

    def body(number: int) -> pa.RecordBatch | None:
        if number != place.id or not left:
            return real(number)
        left.pop()
        if error is not None:
            raise error
        return None

    monkeypatch.setattr(buffer.content, "body", body)


@pytest.mark.parametrize(
    ("chosen", "times", "error", "lost"),
    [
        (1, 1, "reading failed: ioerr", {}),
        (1, 1000, "reading failed: corrupt", {"b": [(0, 4, "damaged")]}),
        (0, 1000, "reading failed: Permission denied", {"a": [(0, 4, "damaged")]}),
        (4, 1000, "reading failed: ioerr", {}),
        (4, 1000, None, {}),
    ],
)
def test_a_body_that_cannot_be_read_holds_up_nothing_and_is_a_gap(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    chosen: int,
    times: int,
    error: str | None,
    lost: dict[str, list[tuple[int, int, str]]],
) -> None:
    """One that fails once is read again. After the last one of a device no row says that it is missing."""
    with Store(tmp_path / "buffer", sync_ms=0) as buffer, Store(tmp_path / "copy", sync_ms=0) as store:
        copy = FleetCopy(store)
        _in_bodies(buffer, ("a", 0), ("b", 0), ("a", 5), ("b", 5), ("c", 0), ("a", 10))
        _lose(buffer, chosen, times, StorageError(error) if error else None, monkeypatch)
        _handed_over(buffer, copy, monkeypatch)
        expected = {name: set(range(log.durable_end)) for name in buffer.names() if (log := buffer.log(name))}
        if times > 1:
            expected["a" if chosen == 0 else "b" if chosen == 1 else "c"] -= set(range(5))
        for name, rows in expected.items():
            recording = copy.find(name)
            items = [] if recording is None else list(checked(name, recording.read()))
            assert (numbers(items), missing(items)) == (rows, lost.get(name, []))


def test_damaged_rows_before_a_pause_are_no_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(tmp_path / "buffer", sync_ms=0) as buffer, Store(tmp_path / "copy", sync_ms=0) as store:
        copy = FleetCopy(store)
        _in_bodies(buffer, ("a", 0), ("a", 5), ("a", 12))
        _lose(buffer, 1, 1000, None, monkeypatch)
        _handed_over(buffer, copy, monkeypatch)
        recording = copy.find("a")
        assert recording is not None and missing(recording.read()) == [(5, 11, "damaged")]


def test_a_gap_without_numbers_within_one_message_is_handed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(tmp_path / "buffer", sync_ms=0) as buffer, Store(tmp_path / "fleet") as store:
        log, copy = buffer.open("a"), FleetCopy(store)
        log.append(batch_of("a", 0, 10)).result()
        log.append(batch_of("a", 10, 10), gap=Gap(0, -1, "line lost")).result()
        stream = _handed_over(buffer, copy, monkeypatch)
        recording = copy.find("a")
        assert stream.messages == 1 and recording is not None
        assert missing(checked("a", recording.read())) == [(10, 9, "line lost")]


def test_many_gaps_in_one_message_are_handed_over_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before each row rows are lost with and without numbers, a pause, both, or nothing is missing."""
    choose = random.Random(42)
    with Store(tmp_path / "buffer") as buffer, Store(tmp_path / "copy", sync_ms=0) as store:
        copy = FleetCopy(store)
        logs = [buffer.open(name) for name in ("a", "b")]
        for turn in range(300):
            for log in logs:
                end = log.next_seq
                unused, lost = choose.choice([(0, 0), (0, 0), (3, 0), (0, 2), (3, 2)]) if end else (0, 0)
                first = end + unused + lost
                gap = Gap(end, first - 1, "line lost") if end and choose.random() < 0.5 else None
                ticket = log.append(
                    batch_of(log.name, first, 1 + turn % 2), first=first, paused_until=end + unused, gap=gap
                )
        ticket.result()
        stream = _handed_over(buffer, copy, monkeypatch)
        assert stream.messages == 1
        for log in logs:
            recording = copy.find(log.name)
            assert recording is not None
            here, there = list(checked(log.name, log.read())), list(checked(log.name, recording.read()))
            assert len(missing(here)) > 100
            assert numbers(there) == numbers(here) and missing(there) == missing(here)


def test_what_was_handed_over_before_a_restart_is_not_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(tmp_path / "buffer", sync_ms=0) as buffer, Store(tmp_path / "copy", sync_ms=0) as store:
        copy = FleetCopy(store)
        _in_bodies(buffer, ("late", 0), ("a", 0), ("a", 5), ("late", 5), ("a", 10))
        copy.add([shipment("alpha", Run("a", 0, 10))])
        assert sorted(_handed_over(buffer, copy, monkeypatch).runs) == [("a", 10, 5), ("late", 0, 10)]


def test_rows_are_divided_into_messages_that_nats_takes_and_a_larger_row_is_lost() -> None:
    sizes = [*[300_000] * 5, 1_200_000, *[300_000] * 3]
    rows = log_batch([Chunk(at, 0, "rx", random.Random(at).randbytes(size)) for at, size in enumerate(sizes)], {})
    runs = [Run("a", 10, 5, 10), Run("large", 0, 1), Run("b", 0, 3)]
    sent: list[tuple[str, int, int]] = []
    data: list[bytes] = []
    for message in messages_of("alpha", rows, runs):
        found = decode(message)
        assert found is not None and len(message) <= MAX_MESSAGE_BYTES
        parts = by_device([found])[1]
        sent += [(run.device, run.first + at, run.paused_until) for run in parts for at in range(run.length)]
        data += found.rows.column("data").to_pylist()
    assert [each[:2] for each in sent] == [
        *(("a", number) for number in range(10, 15)),
        *(("b", at) for at in range(3)),
    ]
    assert data == [random.Random(at).randbytes(300_000) for at in (0, 1, 2, 3, 4, 6, 7, 8)]
    assert {each[2] for each in sent if each[1] == 10} == {10}
