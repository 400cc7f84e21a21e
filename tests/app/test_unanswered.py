"""A server of a cluster that renews its lease, but gives the others no answer: they say which it is, and go on."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from fastflight.app import forwarding
from fastflight.app.cluster_settings import ClusterSettings
from fastflight.app.recording_settings import RecordingSettings
from fastflight.client import FastFlightClient
from fastflight.server.actions import CANCELLING
from fastflight.service.requests import DeviceSession, Sql
from fastflight.service.wire import encode
from tests.support.clustered import TTL, Cluster, clustered
from tests.support.waiting import until

BOARDS = [f"board{number}" for number in range(4)]
LOCAL = "cable"


@pytest.fixture
def silent() -> Iterator[str]:
    """An address that takes connections and says nothing, as a server behind a wrong address may."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"grpc://127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def cluster(tmp_path: Path, silent: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """alpha, and beta, which is reached at no address that it names. Both record all boards."""
    monkeypatch.setattr(forwarding, "LISTING_SECONDS", 0.5)
    monkeypatch.setattr(forwarding, "FLIGHTS_SECONDS", 0.5)
    (tmp_path / "nats").mkdir()
    with clustered(tmp_path / "nats", BOARDS, ()) as cluster:
        for name in ("alpha", "beta"):
            settings = ClusterSettings(cluster.nats.urls, name, ttl=TTL, location=silent if name == "beta" else "")
            recordings = RecordingSettings(tmp_path / "recordings" / name, tuple(BOARDS), sync_ms=20)
            cluster.start(name, cluster=settings, recordings=recordings)
        cluster.settle()
        assert {cluster.owner(board) for board in BOARDS} == {"alpha", "beta"}
        yield cluster


def test_a_server_that_gives_no_answer_is_named_wherever_its_part_is_missing(cluster: Cluster, silent: str) -> None:
    by_alpha = {board for board in BOARDS if cluster.owner(board) == "alpha"}
    why = "the server did not answer in time"
    said = f"beta gives no answer at {silent}: {why}"
    alpha = cluster.servers["alpha"]
    with FastFlightClient(alpha.location) as client:
        until(lambda: {each.name for each in client.recordings()} == {*BOARDS})
        assert {each.name: each.trouble for each in client.devices()} == {
            board: None if board in by_alpha else said for board in BOARDS
        }
        assert {each.name: each.state for each in client.recordings()} == {
            board: "recording" if board in by_alpha else f"unknown: {said}" for board in BOARDS
        }
        storage = client.cluster_storage()
        assert storage["unanswered"] == [{"name": "beta", "location": silent, "why": why}]
        assert storage["waiting"].keys() == by_alpha and storage["replicas"]
        rows = client.read_request(Sql(query="select name, trouble from fastflight.devices")).to_arrow().to_pylist()
        assert {row["name"]: row["trouble"] for row in rows} == {
            board: None if board in by_alpha else said for board in BOARDS
        }
        rows = client.read_request(Sql(query="select distinct device from fastflight.files")).to_arrow().to_pylist()
        assert {row["device"] for row in rows} == by_alpha
    with flight.connect(alpha.location) as plain:
        notes = {}
        for info in plain.list_flights():
            command = {} if info.descriptor.path else json.loads(info.descriptor.command)
            if command.get("type") == "device.listing":
                notes[command["device"]] = json.loads(info.app_metadata or b"{}").get("trouble")
        assert notes == {board: None if board in by_alpha else said for board in BOARDS}
    with urllib.request.urlopen(f"{alpha.http}/cluster", timeout=60) as answer:
        assert json.load(answer)["unanswered"] == storage["unanswered"]


def test_the_commands_name_a_server_that_gives_no_answer(cluster: Cluster, silent: str) -> None:
    location = cluster.servers["alpha"].location
    by_beta = [board for board in BOARDS if cluster.owner(board) == "beta"]
    said = f"beta gives no answer at {silent}: "
    for command in (("cluster", "status"), ("devices",)):
        done = subprocess.run(
            [sys.executable, "-m", "fastflight", *command, "--server", location],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0 and said in done.stderr
        if command == ("devices",):
            assert f"{', '.join(by_beta)}: {said}" in done.stderr
        else:
            rows = [line.split() for line in done.stdout.splitlines() if line.split()[:1] == by_beta[:1]]
            assert rows == [[by_beta[0], "beta", "unknown", "-"]]


def test_streams_that_may_run_at_a_server_without_answer_are_not_called_ended(cluster: Cluster) -> None:
    alpha = cluster.servers["alpha"]
    mine, its = (next(board for board in BOARDS if cluster.owner(board) == name) for name in ("alpha", "beta"))
    with flight.connect(alpha.location) as plain, FastFlightClient(alpha.location) as client:

        def cancel(board: str) -> bytes:
            ticket = encode(DeviceSession(device=board))
            endpoint = flight.FlightEndpoint(ticket, [])
            info = flight.FlightInfo(pa.schema([]), flight.FlightDescriptor.for_command(ticket), [endpoint], -1, -1)
            body = info.serialize()
            (result,) = plain.do_action(("CancelFlightInfo", b"\x0a" + varint(len(body)) + body))
            return bytes(result.body.to_pybytes())

        with client.session(mine):
            assert cancel(mine) == CANCELLING
        with pytest.raises(flight.FlightUnavailableError, match="a server without answer: beta"):
            cancel(its)


def varint(number: int) -> bytes:
    return bytes([number]) if number < 0x80 else bytes([number & 0x7F | 0x80]) + varint(number >> 7)
