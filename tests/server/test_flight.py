"""The server as a whole: what it lists, what it can be asked to do, how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
import threading

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from fastflight.service import DataSource
from fastflight.service.source import Estimate
from tests.campaigns.fuzz.protobuf import field

from .conftest import SOON, Trial, TrialServer, ticket, trial_server


def act(running: TrialServer, name: str, body: bytes = b"") -> list[bytes]:
    return [result.body.to_pybytes() for result in running.client.do_action(flight.Action(name, body))]


@pytest.mark.parametrize("criteria", [b"", b"mo*", b'{"type": "mock"}'])
def test_flights_are_listed_with_a_ticket_that_works(running: TrialServer, criteria: bytes) -> None:
    (info,) = running.client.list_flights(criteria)
    assert (info.total_records, info.total_bytes) == (1_000_000, 200_000_000)
    assert info.schema.names[0] == "col_0"
    (endpoint,) = info.endpoints
    assert endpoint.locations == []
    reader = running.client.do_get(endpoint.ticket)
    assert reader.schema.names == info.schema.names
    reader.cancel()
    assert running.settled()


def test_info_and_schema_of_a_descriptor(running: TrialServer) -> None:
    descriptor = flight.FlightDescriptor.for_command(b'{"type": "mock", "variant": "simple", "total_rows": 5}')
    info = running.client.get_flight_info(descriptor)
    assert info.descriptor == descriptor
    assert (info.total_records, info.total_bytes) == (5, 80)
    assert running.client.do_get(info.endpoints[0].ticket).read_all().num_rows == 5
    assert running.client.get_schema(descriptor).schema.names == ["col_0", "col_1", "col_2", "col_3"]


def test_a_source_that_does_not_describe_itself(running: TrialServer) -> None:
    descriptor = flight.FlightDescriptor.for_command(b'{"type": "trial"}')
    assert running.client.get_flight_info(descriptor).total_records == -1
    with pytest.raises(pa.ArrowInvalid, match="known only by reading"):
        running.client.get_schema(descriptor)


@pytest.mark.parametrize(
    "later",
    [
        Estimate(pa.schema({"a": pa.int32()}), rows=2),
        Estimate(pa.schema({"a": pa.int32()}, metadata={"of": "today"}), rows=1),
        Estimate(pa.schema({"a": pa.int32()}), rows=1, note={"busy": "somebody"}),
    ],
)
def test_a_flight_that_has_changed_is_described_anew(later: Estimate) -> None:
    class Changing(DataSource[Trial]):
        request = Trial
        known = Estimate(pa.schema({"a": pa.int32()}), rows=1)

        def describe(self, request: Trial) -> Estimate:
            return self.known

    source, flights = Changing(), []
    with trial_server(trial=source) as running:
        for known in (source.known, later, later):
            source.known = known
            descriptor = flight.FlightDescriptor.for_command(b'{"type": "trial"}')
            flights.append(running.client.get_flight_info(descriptor).serialize())
    assert flights[0] != flights[1] == flights[2]


def test_actions_are_described_with_the_schema_of_their_body(running: TrialServer) -> None:
    actions = {action.type: action.description for action in running.client.list_actions()}
    assert set(actions) == {"health", "identity", "stats", "CancelFlightInfo", "RenewFlightEndpoint", "greet"}
    description, schema = actions["greet"].split("\n")
    assert description == "Says hello."
    assert json.loads(schema)["required"] == ["name"]


def test_actions_that_are_given_in(running: TrialServer) -> None:
    assert act(running, "greet", b'{"name": "board"}') == [b'{"said": "hello board"}']


def test_health_and_stats(running: TrialServer) -> None:
    assert act(running, "health") == [b'{"status": "serving"}']
    running.client.do_get(ticket(type="mock", total_rows=10)).read_all()
    assert running.settled()
    stats = json.loads(act(running, "stats", b"{}")[0])
    assert stats["sources"]["mock"]["rows"] == 10
    assert (stats["open"], stats["started"], stats["finished"]) == (0, 1, 1)
    assert stats["threads"]["handlers"] == 0


def test_a_flight_is_cancelled_by_its_info(running: TrialServer) -> None:
    descriptor = flight.FlightDescriptor.for_command(b'{"idle": true, "rows": 1, "type": "trial"}')
    info = running.client.get_flight_info(descriptor)
    body = field(1, info.serialize())
    assert act(running, "CancelFlightInfo", body) == [b"\x08\x03"]
    reader = running.client.do_get(ticket(type="trial", rows=1, idle=True))
    assert reader.read_chunk().data.num_rows == 1
    assert act(running, "CancelFlightInfo", body) == [b"\x08\x02"]
    with pytest.raises(flight.FlightUnavailableError, match="cancelled by CancelFlightInfo"):
        reader.read_all()
    assert running.settled()
    assert running.trials.closed.is_set()


def test_an_endpoint_is_renewed_unchanged(running: TrialServer) -> None:
    (info,) = running.client.list_flights()
    serialized = info.endpoints[0].serialize()
    assert act(running, "RenewFlightEndpoint", field(1, serialized)) == [serialized]


def test_closing_ends_open_streams_as_unavailable(running: TrialServer, mode: str) -> None:
    reader = running.client.do_get(ticket(type="trial", rows=1, idle=True, mode=mode))
    assert reader.read_chunk().data.num_rows == 1
    closing = threading.Thread(target=running.server.close, args=(0,))
    closing.start()
    with pytest.raises(flight.FlightUnavailableError, match="the server shuts down"):
        reader.read_all()
    closing.join(SOON)
    assert running.trials.closed.is_set()
    assert not any(shard.running for shard in running.shards)


def test_a_draining_server_refuses_new_work(running: TrialServer) -> None:
    running.server._registry.drain()
    with pytest.raises(flight.FlightUnavailableError, match="the server shuts down"):
        running.client.do_get(ticket(type="mock")).read_all()
    with pytest.raises(flight.FlightUnavailableError, match="the server shuts down"):
        list(running.client.list_flights())
    for call in (running.client.get_flight_info, running.client.get_schema):
        with pytest.raises((flight.FlightUnavailableError, pa.ArrowException), match="the server shuts down"):
            call(flight.FlightDescriptor.for_command(b'{"type": "mock"}'))
    assert act(running, "health") == [b'{"status": "draining"}']


# Never set: what a handler that waits for its client looks like is that nothing is sent for a while.
client_is_behind = threading.Event()

STALLED = """
import sys
import pyarrow.flight as flight
client = flight.connect(sys.argv[1])
reader = client.do_get(flight.Ticket(sys.argv[2]))
reader.read_chunk()
print("stalled", flush=True)
sys.stdin.read()
"""


def test_closing_in_front_of_a_client_that_does_not_read(
    running: TrialServer, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastflight.server.flight.STOP_SECONDS", 0.5)
    location = f"grpc://127.0.0.1:{running.server.port}"
    request = json.dumps({"type": "mock", "mode": mode, "total_rows": 1_000_000_000})
    with subprocess.Popen(
        [sys.executable, "-c", STALLED, location, request], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as client:
        assert client.stdout is not None and client.stdin is not None
        assert client.stdout.readline() == b"stalled\n"
        sent = -1
        while sent != (sent := running.stats()["rows"]):  # until the handler waits for the client
            running.tasks()
            client_is_behind.wait(0.2)
        assert running.server.close(0)
        assert not any(shard.running for shard in running.shards)
        assert client.poll() is None
        client.stdin.close()
    assert running.stats()["open"] == 0


def test_closing_in_front_of_an_upload_that_says_nothing(
    running: TrialServer, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastflight.server.flight.STOP_SECONDS", 0.2)
    batch = pa.record_batch([pa.array([1], pa.int64())], names=["n"])
    descriptor = flight.FlightDescriptor.for_command(json.dumps({"type": "trial", "mode": mode}))
    writer, _ = running.client.do_put(descriptor, batch.schema)
    writer.write_batch(batch)
    assert running.trials.begun.wait(SOON)
    assert running.server.close(0)
    assert running.trials.broke_off == ["Stopped"]
    with pytest.raises(flight.FlightError):
        writer.close()
