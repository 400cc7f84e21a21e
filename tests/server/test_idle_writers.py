"""Clients that stop writing, and what becomes of their uploads, devices, connections and neighbours."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from itertools import islice

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from fastflight.client import FastFlightClient
from fastflight.client.failure import typed
from fastflight.client.rows import UploadRows
from fastflight.errors import Stopped
from fastflight.runtime.admission import SILENT_SECONDS, Limits
from fastflight.server.deadlines import GRACE_SECONDS
from fastflight.service.source import Acknowledge, AsyncIncoming, Batches, Progress, Reading, Summary
from tests.support.function_source import FunctionSource, sync_write
from tests.support.waiting import until

from .conftest import SCHEMA, SOON, Later, Trial, TrialServer, trial_server
from .test_uploads import BATCH, acks, command

WAITS_FOR_AN_ANSWER = """
import sys
import pyarrow as pa
from pyarrow import flight

location, asked = sys.argv[1:]
writer, reader = flight.connect(location).do_exchange(flight.FlightDescriptor.for_command(asked))
writer.begin(pa.schema([("n", pa.int64())]))
reader.read_chunk()
"""


def test_a_client_that_is_there_is_told_and_ends(running: TrialServer, mode: str) -> None:
    writer, reader = running.client.do_put(command(type="trial", mode=mode), SCHEMA)
    writer.write_batch(BATCH)
    assert json.loads(reader.read().to_pybytes()) == {"rows": 10, "bytes": 80}
    later = Later(running)
    later.writer()
    later.after(SILENT_SECONDS / 2)
    assert running.trials.broke_off == []
    later.after(SILENT_SECONDS / 2)
    assert json.loads(reader.read().to_pybytes()) == {"refused": True}
    with pytest.raises(flight.FlightUnavailableError, match="the client has sent nothing for 60 s") as raised:
        writer.close()
    assert isinstance(typed(raised.value, ""), Stopped)
    assert running.settled()
    assert running.trials.broke_off == ["Stopped"]
    assert running.client.do_get(flight.Ticket(b'{"type": "trial"}')).read_all().num_rows == 3


def test_a_server_checks_by_itself(mode: str) -> None:
    with trial_server(Limits(silent_seconds=0.1)) as running:
        writer, reader = running.client.do_put(command(type="trial", mode=mode), SCHEMA)
        assert json.loads(reader.read().to_pybytes()) == {"refused": True}
        with pytest.raises(flight.FlightUnavailableError, match="the client has sent nothing for 0.1 s"):
            writer.close()
        assert running.settled()


def test_one_that_does_not_react_has_its_connection_cut(running: TrialServer, mode: str) -> None:
    client = flight.connect(f"grpc://127.0.0.1:{running.server.port}")
    writer, reader = client.do_put(command(type="trial", mode=mode), SCHEMA)
    writer.write_batch(BATCH)
    assert reader.read() is not None
    later = Later(running)
    later.writer()
    later.after(SILENT_SECONDS)
    assert running.stats()["open"] == 1
    later.after(GRACE_SECONDS)
    assert running.settled()
    assert running.trials.broke_off == ["Stopped"]
    with pytest.raises(pa.ArrowException):
        writer.close()
    client.close()


def test_others_on_its_connection_go_on_and_it_is_cut_when_they_have_ended(running: TrialServer, mode: str) -> None:
    other = running.client.do_get(flight.Ticket(b'{"type": "trial", "rows": 1, "idle": true}'))
    assert other.read_chunk().data.num_rows == 1
    writer, reader = running.client.do_put(command(type="trial", mode=mode), SCHEMA)
    writer.write_batch(BATCH)
    assert reader.read() is not None
    later = Later(running)
    later.writer()
    for seconds in (SILENT_SECONDS, GRACE_SECONDS, GRACE_SECONDS, GRACE_SECONDS):
        later.after(seconds)
    assert json.loads(reader.read().to_pybytes()) == {"refused": True}
    assert running.trials.broke_off == ["Stopped"]
    assert running.stats()["open"] == 2
    list(running.client.do_action(flight.Action("health", b"")))
    other.cancel()
    until(lambda: running.stats()["open"] < 2)
    later.after(GRACE_SECONDS)
    assert running.settled()
    with pytest.raises(pa.ArrowException):
        writer.close()


def test_a_stream_that_is_ended_from_outside_frees_its_device_though_its_client_says_nothing(mode: str) -> None:
    with trial_server() as running:
        writer, reader = running.client.do_put(command(type="trial", mode=mode), SCHEMA)
        writer.write_batch(BATCH)
        assert reader.read() is not None
        running.server._registry.stop_all()
        assert json.loads(reader.read().to_pybytes()) == {"refused": True}
        assert running.trials.broke_off == ["Stopped"]
        with pytest.raises(flight.FlightUnavailableError, match="the server shuts down"):
            writer.close()
        assert running.settled()


def test_who_waits_for_a_slow_device_is_not_silent(mode: str) -> None:
    """The client has sent what it has; it is the board that takes its time."""

    async def awrite(
        request: Trial, schema: pa.Schema, batches: AsyncIterator[pa.RecordBatch], acknowledge: object
    ) -> Summary:
        rows = sum([batch.num_rows async for batch in batches])
        await asyncio.to_thread(Later(running).after, 2 * SILENT_SECONDS)
        return {"rows": rows}

    with trial_server(trial=FunctionSource(Trial, write=sync_write(awrite), awrite=awrite)) as running:
        writer, reader = running.client.do_put(command(type="trial", mode=mode), SCHEMA)
        with writer:
            writer.write_batch(BATCH)
            writer.done_writing()
            assert acks(reader) == [{"rows": 10, "done": True}]


def test_who_waits_for_word_of_what_it_sent_is_not_silent(mode: str) -> None:
    """Our own client waits so before it says that it was all."""
    took, stored, broke_off = threading.Event(), threading.Event(), threading.Event()

    async def awrite(
        request: Trial, schema: pa.Schema, batches: AsyncIterator[pa.RecordBatch], acknowledge: Acknowledge
    ) -> Summary:
        try:
            async for batch in batches:
                took.set()
                await asyncio.to_thread(stored.wait, SOON)
                acknowledge(Progress(batch.num_rows, 0))
        except Stopped:
            broke_off.set()
            raise
        return {}

    with trial_server(trial=FunctionSource(Trial, write=sync_write(awrite), awrite=awrite)) as running:
        writer, reader = running.client.do_put(command(type="trial", mode=mode), SCHEMA)
        writer.write_batch(BATCH)
        assert took.wait(SOON)
        later = Later(running)
        waits = later.writer().client_waits
        later.after(2 * SILENT_SECONDS)
        stored.set()
        assert json.loads(reader.read().to_pybytes()) == {"rows": 10, "bytes": 0}
        until(lambda: waits is None or not waits())  # the source asks for the next batch
        later.after(SILENT_SECONDS / 2)
        assert not broke_off.is_set()
        later.after(SILENT_SECONDS / 2)
        assert json.loads(reader.read().to_pybytes()) == {"refused": True}
        assert broke_off.wait(SOON)
        with pytest.raises(flight.FlightUnavailableError, match="the client has sent nothing for 60 s"):
            writer.close()
        assert running.settled()


def test_who_waits_for_word_of_one_that_passes_it_on_is_not_silent_either(mode: str) -> None:
    """A source that passes rows on acknowledges them later, when its own peer has them."""
    took: list[Acknowledge] = []
    has_it = threading.Event()

    async def awrite(
        request: Trial, schema: pa.Schema, batches: AsyncIterator[pa.RecordBatch], acknowledge: Acknowledge
    ) -> Summary:
        async for _ in batches:
            took.append(acknowledge)
            has_it.set()
        return {}

    with trial_server(trial=FunctionSource(Trial, write=sync_write(awrite), awrite=awrite)) as running:
        writer, reader = running.client.do_put(command(type="trial", mode=mode), SCHEMA)
        with writer:
            writer.write_batch(BATCH)
            assert has_it.wait(SOON)
            later = Later(running)
            later.writer()
            later.after(2 * SILENT_SECONDS)
            took[0](Progress(10, 80))
            assert json.loads(reader.read().to_pybytes()) == {"rows": 10, "bytes": 80}
            writer.done_writing()
            assert acks(reader) == [{"done": True}]


def test_an_exchange_may_be_silent_until_its_answer_has_ended(mode: str) -> None:
    opened = threading.Event()

    def exchange(request: Trial, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Reading:
        opened.set()
        return Reading(SCHEMA, islice(([BATCH] for _ in batches), 1))

    async def aexchange(request: Trial, schema: pa.Schema, batches: AsyncIncoming) -> Reading:
        opened.set()

        async def answer() -> AsyncIterator[Batches]:
            await anext(aiter(batches))
            yield [BATCH]

        return Reading(SCHEMA, answer())

    with trial_server(trial=FunctionSource(Trial, exchange=exchange, aexchange=aexchange)) as running:
        client = flight.connect(f"grpc://127.0.0.1:{running.server.port}")
        writer, reader = client.do_exchange(command(type="trial", mode=mode))
        writer.begin(SCHEMA)
        assert opened.wait(SOON)
        later = Later(running)
        later.after(2 * SILENT_SECONDS)
        writer.write_batch(BATCH)
        assert reader.read_chunk().data.num_rows == 10
        later.writer()
        later.after(SILENT_SECONDS)
        later.after(GRACE_SECONDS)
        assert running.settled()  # the answer has ended, and the client has not ended its side
        with pytest.raises(pa.ArrowException):
            writer.close()
        client.close()


def test_an_exchange_that_does_not_even_begin_is_cut(mode: str) -> None:
    def exchange(request: Trial, schema: pa.Schema, batches: object) -> Reading:
        raise AssertionError("nothing was sent")

    async def aexchange(request: Trial, schema: pa.Schema, batches: object) -> Reading:
        raise AssertionError("nothing was sent")

    with trial_server(trial=FunctionSource(Trial, exchange=exchange, aexchange=aexchange)) as running:
        client = flight.connect(f"grpc://127.0.0.1:{running.server.port}")
        writer, _ = client.do_exchange(command(type="trial", mode=mode))
        later = Later(running)
        later.writer()
        later.after(SILENT_SECONDS)
        assert running.stats()["open"] == 1
        later.after(GRACE_SECONDS)
        assert running.settled()
        assert running.stats()["cancelled"] == 1
        with pytest.raises(pa.ArrowException):
            writer.close()
        client.close()


def test_our_own_client_raises_what_the_server_said(running: TrialServer) -> None:
    """Rows that stop coming: it is the client's own source that is silent."""
    acknowledged, released = threading.Event(), threading.Event()

    def rows() -> Iterator[pa.RecordBatch]:
        yield BATCH
        assert released.wait(SOON)
        yield BATCH

    def pass_time() -> None:
        assert acknowledged.wait(SOON)
        later = Later(running)
        later.writer()
        later.after(SILENT_SECONDS)

    with FastFlightClient(f"grpc://127.0.0.1:{running.server.port}") as client:
        upload = client._connection.upload(Trial(), UploadRows(SCHEMA, rows()), lambda *_: acknowledged.set())
        running.trials.ended = released.set
        passing = threading.Thread(target=pass_time)
        passing.start()
        with pytest.raises(Stopped, match="the client has sent nothing"):
            upload.run()
        passing.join()
    assert running.settled()


def test_a_client_that_leaves_before_an_exchange_answers_is_no_error_of_the_server(
    capsys: pytest.CaptureFixture[str],
) -> None:
    opened, left = threading.Event(), threading.Event()

    def exchange(request: Trial, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Reading:
        opened.set()
        assert left.wait(SOON)
        return Reading(SCHEMA, iter(()))

    with trial_server(trial=FunctionSource(Trial, exchange=exchange)) as running:
        location, asked = f"grpc://127.0.0.1:{running.server.port}", json.dumps({"type": "trial"})
        with subprocess.Popen([sys.executable, "-c", WAITS_FOR_AN_ANSWER, location, asked]) as client:
            assert opened.wait(SOON)
            client.kill()
        until(lambda: all(stream._has_left() for stream in running.server._registry._running()))
        left.set()
        assert running.settled()
    assert "request failed" not in capsys.readouterr().out
