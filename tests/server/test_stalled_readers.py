"""Clients that stop reading, and what becomes of their sources, connections and neighbours."""

from __future__ import annotations

import asyncio
import errno
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from structlog.testing import capture_logs

from fastflight.app.compose import open_server
from fastflight.client import FastFlightClient
from fastflight.client.failure import typed
from fastflight.errors import Stopped
from fastflight.runtime.admission import STALLED_LIVE_SECONDS, STALLED_SECONDS, Limits
from fastflight.runtime.stream import Stream
from fastflight.server.connections import address, cut
from fastflight.service.source import AsyncIncoming, Batches, Incoming, Reading
from tests.support.function_source import FunctionSource
from tests.support.servers import config
from tests.support.waiting import until

from .conftest import SCHEMA, SOON, Later, Trial, TrialServer, trial_server
from .test_uploads import command

# A client that does not look how much the line could carry: by that, gRPC takes ahead for one that does not read what
# chance has it, 4 MB or 38.
STEADY = [("grpc.http2.bdp_probe", 0)]
# One that takes a byte at a time, too.
THIN = [("grpc.http2.lookahead_bytes", 1), *STEADY]
# A row that no window of such a client and no buffer on the way takes whole: who has one in front of it and does not
# read stands still.
ROW = pa.record_batch({"data": pa.array([bytes(32_000_000)])})


class Heavy:
    """A source of such rows, and whether it was closed."""

    def __init__(self) -> None:
        self.closed = threading.Event()
        self.source = FunctionSource(
            Trial, read=self.read, aread=self.aread, exchange=self.exchange, aexchange=self.aexchange
        )

    def read(self, request: Trial) -> Reading:
        return Reading(ROW.schema, self._rows())

    async def aread(self, request: Trial) -> Reading:
        return Reading(ROW.schema, self._arows(request.idle))

    def exchange(self, request: Trial, schema: pa.Schema, batches: Incoming) -> Reading:
        return self.read(request)

    async def aexchange(self, request: Trial, schema: pa.Schema, batches: AsyncIncoming) -> Reading:
        return await self.aread(request)

    def _rows(self) -> Iterator[Batches]:
        try:
            while True:
                yield [ROW]
        finally:
            self.closed.set()

    async def _arows(self, idle: bool) -> AsyncIterator[Batches]:
        if idle:
            await asyncio.Event().wait()
        try:
            while True:
                yield [ROW]
        finally:
            self.closed.set()


@pytest.fixture
def heavy() -> Heavy:
    return Heavy()


@pytest.fixture
def running(heavy: Heavy) -> Iterator[TrialServer]:
    with trial_server(trial=heavy.source) as started:
        yield started


@pytest.fixture
def client(running: TrialServer) -> Iterator[flight.FlightClient]:
    with connected(running, STEADY) as client:
        yield client


@pytest.fixture
def stopped(client: flight.FlightClient, mode: str) -> Iterator[flight.FlightStreamReader]:
    """A client that has asked, and does not read."""
    reader = asked(client, mode)
    yield reader
    reader.cancel()


def connected(running: TrialServer, options: list[tuple[str, int]]) -> flight.FlightClient:
    return flight.FlightClient(f"grpc://127.0.0.1:{running.server.port}", generic_options=options)


def asked(client: flight.FlightClient, mode: str = "async", **request: object) -> flight.FlightStreamReader:
    return client.do_get(flight.Ticket(json.dumps({"type": "trial", "mode": mode, **request}).encode()))


def test_the_device_of_one_that_stops_is_free_and_it_is_told_when_it_reads_on(
    running: TrialServer, heavy: Heavy, stopped: flight.FlightStreamReader
) -> None:
    later = Later(running)
    later.reader()
    later.after(0)
    assert not heavy.closed.is_set()
    later.after(STALLED_SECONDS)
    assert heavy.closed.wait(SOON)
    assert running.stats()["open"] == 1
    with pytest.raises(flight.FlightUnavailableError, match="the client has not read for 120 s") as raised:
        stopped.read_all()
    assert isinstance(typed(raised.value, ""), Stopped)
    assert running.settled()
    assert later.metrics() == {"readers": 1, "writers": 0, "cut": 0}


def test_a_look_that_fails_for_one_stream_ends_the_others_all_the_same(
    running: TrialServer, heavy: Heavy, stopped: flight.FlightStreamReader
) -> None:
    later = Later(running)
    stream = later.reader()
    with pytest.MonkeyPatch.context() as patch, connected(running, STEADY) as client, capture_logs() as logs:
        other = asked(client)
        until(lambda: len(later.registry.waiting_for_clients()) == 2)
        patch.setattr(type(stream), "stalled_seconds", property(_fails_once()))
        later.after(0)
        later.after(STALLED_SECONDS)
        assert [line["event"] for line in logs].count("request failed") == 1
        later.after(0)
        assert all(each.why_stop for each in later.registry.waiting_for_clients())
        other.cancel()


def _fails_once() -> Callable[[Stream], float]:
    fails = iter([True])

    def seconds(stream: Stream) -> float:
        if next(fails, False):
            raise ValueError("nobody knows")
        return STALLED_SECONDS

    return seconds


def test_one_that_is_stopped_while_its_source_opens_says_why() -> None:
    opening = threading.Event()

    async def aread(request: Trial) -> Reading:
        opening.set()
        await asyncio.Event().wait()
        raise AssertionError("never")

    with trial_server(trial=FunctionSource(Trial, aread=aread)) as running:

        def stop() -> None:
            assert opening.wait(SOON)
            running.server._registry.stop_all()

        stopping = threading.Thread(target=stop)
        stopping.start()
        with pytest.raises(flight.FlightUnavailableError, match="the server shuts down"):
            asked(running.client)
        stopping.join()
        assert running.settled()


def test_the_connection_of_one_that_stays_is_cut(running: TrialServer, stopped: flight.FlightStreamReader) -> None:
    later = Later(running)
    later.reader()
    later.after(STALLED_SECONDS)
    later.after(STALLED_SECONDS / 2)
    assert running.stats()["open"] == 1
    later.after(STALLED_SECONDS / 2)
    assert running.settled()
    assert later.metrics() == {"readers": 1, "writers": 0, "cut": 1}
    with pytest.raises(pa.ArrowException):
        stopped.read_all()


def test_others_on_its_connection_go_on(running: TrialServer, client: flight.FlightClient, mode: str) -> None:
    stopped = asked(client, mode)
    later = Later(running)
    later.reader()
    other = asked_idly(client)
    for _ in range(3):
        later.after(STALLED_SECONDS)
    assert running.stats()["open"] == 2
    assert later.metrics() == {"readers": 1, "writers": 0, "cut": 0}
    other.cancel()
    with pytest.raises(flight.FlightUnavailableError, match="has not read"):
        stopped.read_all()
    assert running.settled()


def test_one_that_takes_a_batch_now_and_then_is_left_alone(
    running: TrialServer, stopped: flight.FlightStreamReader
) -> None:
    later = Later(running)
    for _ in range(3):
        before = later.reader().offered
        later.after(STALLED_SECONDS / 2)
        later.late = 0
        while later.reader().offered == before:
            stopped.read_chunk()
    assert later.metrics()["readers"] == 0
    stopped.cancel()
    assert running.settled()


def test_an_exchange_whose_answer_nobody_reads_gives_its_device_back(
    running: TrialServer, client: flight.FlightClient, heavy: Heavy, mode: str
) -> None:
    writer, _ = client.do_exchange(command(type="trial", mode=mode))
    writer.begin(SCHEMA)
    later = Later(running)
    later.reader()
    later.after(STALLED_SECONDS)
    assert heavy.closed.wait(SOON)
    later.after(STALLED_SECONDS)
    assert running.settled()
    with pytest.raises(pa.ArrowException):
        writer.close()


def test_a_live_session_may_look_away_for_longer(running: TrialServer, stopped: flight.FlightStreamReader) -> None:
    stream = Later(running).reader()
    assert stream.stalled_seconds == STALLED_SECONDS
    stream.when_draining(lambda: None)
    assert stream.stalled_seconds == STALLED_LIVE_SECONDS
    stopped.cancel()
    assert running.settled()


def test_a_kept_answer_that_nobody_reads_is_ended_as_every_other(running: TrialServer) -> None:
    ticket = flight.Ticket(b'{"type": "mock", "total_rows": 300}')
    for _ in range(2):
        running.client.do_get(ticket).read_all()
    with connected(running, THIN) as thin:
        stopped = thin.do_get(ticket)
        later = Later(running)
        later.reader()
        later.after(STALLED_SECONDS)
        later.after(STALLED_SECONDS)
        assert running.settled()
        assert later.metrics() == {"readers": 1, "writers": 0, "cut": 1}
        with pytest.raises(pa.ArrowException):
            stopped.read_all()


def test_without_a_descriptor_to_look_with_it_looks_again_later(
    running: TrialServer, stopped: flight.FlightStreamReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients that multiply may take them all: then most of all it must not end."""

    def none_left(path: str) -> list[str]:
        raise OSError(errno.EMFILE, "Too many open files", path)

    later = Later(running)
    later.reader()
    later.after(0)
    with monkeypatch.context() as patched:
        patched.setattr("fastflight.server.connections.os.listdir", none_left)
        later.after(STALLED_SECONDS)
        assert cut(running.server.port) == 0
    later.after(2 * STALLED_SECONDS)
    assert running.settled()
    assert later.metrics() == {"readers": 1, "writers": 0, "cut": 1}
    with pytest.raises(pa.ArrowException):
        stopped.read_all()


def asked_idly(client: flight.FlightClient) -> flight.FlightStreamReader:
    """A stream beside, which is no trial, and whose client waits for the next row."""
    return client.do_get(
        flight.Ticket(b'{"type": "mock", "rows_per_batch": 1, "total_rows": 1000, "delay_per_row": 1}')
    )


def test_who_comes_by_a_socket_of_unix_has_no_port_to_be_found_by() -> None:
    """Nor does later for one end what looks after all others."""
    assert address("unix:/run/fastflight.sock") is None
    assert cut(1, "unix:/run/fastflight.sock") == 0


def test_others_have_the_board_while_the_one_that_stopped_is_still_there(tmp_path: Path, mode: str) -> None:
    """A server as it is, with a short limit: a file that is larger than all that may wait on the way."""
    (tmp_path / "large.bin").write_bytes(bytes(48_000_000))
    (tmp_path / "small.csv").write_text("n\n1\n")
    settings = config({"demo": f"sim:?files={tmp_path}"}, limits=Limits(stalled_seconds=0.2))
    with open_server(settings) as server, FastFlightClient(server.location) as client:
        stalled = flight.connect(server.location)
        asked = f'{{"type": "device.file", "device": "demo", "path": "/large.bin", "mode": "{mode}"}}'
        reader = stalled.do_get(flight.Ticket(asked.encode()))
        assert reader.schema.names == ["offset", "data"]
        assert client.read("demo", "/small.csv").to_arrow().num_rows == 1
        stalled.close()
