"""Clients that say nothing, and what becomes of their uploads, devices, connections and neighbours."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from itertools import islice

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from fastflight.client import FastFlightClient
from fastflight.client.failure import typed
from fastflight.client.rows import Rows
from fastflight.errors import Stopped
from fastflight.server import silence
from fastflight.service import Source
from fastflight.service.admission import Limits
from fastflight.service.ledger import Ledger
from fastflight.service.source import AsyncReading, Reading, Summary
from fastflight.service.stream import Stream

from .conftest import SCHEMA, SOON, Running, Trial, serving
from .test_uploads import BATCH, acks, command

SHORT = Limits(silent_seconds=0.2)


@pytest.fixture
def running() -> Iterator[Running]:
    with serving(SHORT) as started:
        yield started


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that gives nobody time to react."""
    monkeypatch.setattr(silence, "GRACE_SECONDS", 0.01)
    monkeypatch.setattr(silence, "AGAIN_SECONDS", 0.01)


def test_a_client_that_is_there_is_told_and_ends(running: Running, mode: str) -> None:
    writer, reader = running.client.do_put(command(type="trial", mode=mode), SCHEMA)
    writer.write_batch(BATCH)
    assert json.loads(reader.read().to_pybytes()) == {"rows": 10, "bytes": 80}
    assert json.loads(reader.read().to_pybytes()) == {"refused": True}
    with pytest.raises(flight.FlightUnavailableError, match=r"the client has said nothing for 0\.2 s") as raised:
        writer.close()
    assert isinstance(typed(raised.value, ""), Stopped)
    assert running.settled()
    assert running.trials.broke_off == ["Stopped"]
    assert running.client.do_get(flight.Ticket(b'{"type": "trial"}')).read_all().num_rows == 3


@pytest.mark.usefixtures("impatient")
def test_one_that_does_not_react_has_its_connection_cut(running: Running, mode: str) -> None:
    client = flight.connect(f"grpc://127.0.0.1:{running.server.port}")
    writer, reader = client.do_put(command(type="trial", mode=mode), SCHEMA)
    writer.write_batch(BATCH)
    assert reader.read() is not None
    assert running.settled()
    assert running.trials.broke_off == ["Stopped"]
    with pytest.raises(pa.ArrowException):
        writer.close()
    client.close()


@pytest.mark.usefixtures("impatient")
def test_others_on_its_connection_go_on_and_it_is_cut_when_they_have_ended(
    running: Running, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, has_alone = threading.Semaphore(0), Ledger.has_alone

    def counted(ledger: Ledger, stream: Stream) -> bool:
        alone = has_alone(ledger, stream)
        asked.release()
        return alone

    monkeypatch.setattr(Ledger, "has_alone", counted)
    other = running.client.do_get(flight.Ticket(b'{"type": "trial", "rows": 1, "idle": true}'))
    assert other.read_chunk().data.num_rows == 1
    writer, _ = running.client.do_put(command(type="trial", mode=mode), SCHEMA)
    writer.write_batch(BATCH)
    for _ in range(3):  # it would have been cut
        assert asked.acquire(timeout=SOON)
    assert running.trials.broke_off == ["Stopped"]
    assert running.stats()["open"] == 2
    list(running.client.do_action(flight.Action("health", b"")))
    other.cancel()
    assert running.settled()
    with pytest.raises(pa.ArrowException):
        writer.close()


def test_a_stream_that_is_ended_from_outside_frees_its_device_though_its_client_says_nothing(mode: str) -> None:
    with serving() as running:
        writer, reader = running.client.do_put(command(type="trial", mode=mode), SCHEMA)
        writer.write_batch(BATCH)
        assert reader.read() is not None
        running.server._ledger.stop_all()
        assert json.loads(reader.read().to_pybytes()) == {"refused": True}
        assert running.trials.broke_off == ["Stopped"]
        with pytest.raises(flight.FlightUnavailableError, match="the server shuts down"):
            writer.close()
        assert running.settled()


def test_who_waits_for_a_slow_device_is_not_silent(mode: str) -> None:
    """The client has sent what it has; it is the board that takes its time."""
    slow = 2 * SHORT.silent_seconds

    def write(request: Trial, schema: pa.Schema, batches: Iterator[pa.RecordBatch], acknowledge: object) -> Summary:
        rows = sum(batch.num_rows for batch in batches)
        threading.Event().wait(slow)
        return {"rows": rows}

    async def awrite(
        request: Trial, schema: pa.Schema, batches: AsyncIterator[pa.RecordBatch], acknowledge: object
    ) -> Summary:
        rows = sum([batch.num_rows async for batch in batches])
        await asyncio.sleep(slow)
        return {"rows": rows}

    with serving(SHORT, Source(Trial, write=write, awrite=awrite)) as running:
        writer, reader = running.client.do_put(command(type="trial", mode=mode), SCHEMA)
        with writer:
            writer.write_batch(BATCH)
            writer.done_writing()
            assert acks(reader) == [{"rows": 10, "done": True}]


@pytest.mark.usefixtures("impatient")
def test_an_exchange_may_be_silent_until_its_answer_has_ended(mode: str) -> None:
    def exchange(request: Trial, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Reading:
        return Reading(SCHEMA, islice((BATCH for _ in batches), 1))

    async def aexchange(request: Trial, schema: pa.Schema, batches: AsyncIterator[pa.RecordBatch]) -> AsyncReading:
        async def answer() -> AsyncIterator[pa.RecordBatch]:
            await anext(aiter(batches))
            yield BATCH

        return AsyncReading(SCHEMA, answer())

    limits = Limits(silent_seconds=0.01)
    with serving(limits, Source(Trial, exchange=exchange, aexchange=aexchange)) as running:
        client = flight.connect(f"grpc://127.0.0.1:{running.server.port}")
        writer, reader = client.do_exchange(command(type="trial", mode=mode))
        writer.begin(SCHEMA)
        threading.Event().wait(20 * limits.silent_seconds)
        writer.write_batch(BATCH)
        assert reader.read_chunk().data.num_rows == 10
        assert running.settled()  # the answer has ended, and the client has not ended its side
        with pytest.raises(pa.ArrowException):
            writer.close()
        client.close()


def test_our_own_client_raises_what_the_server_said(running: Running) -> None:
    """Rows that stop coming: it is the client's own source that is silent."""
    released = threading.Event()

    def rows() -> Iterator[pa.RecordBatch]:
        yield BATCH
        assert released.wait(SOON)
        yield BATCH

    with FastFlightClient(f"grpc://127.0.0.1:{running.server.port}") as client:
        upload = client._connection.upload(Trial(), Rows(SCHEMA, rows()), None)
        running.trials.ended = released.set
        with pytest.raises(Stopped, match="the client has said nothing"):
            upload.run()
    assert running.settled()
