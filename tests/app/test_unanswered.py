"""A server of a cluster that renews its lease, but gives the others no answer: they say which it is, and go on."""

from __future__ import annotations

import json
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from fastflight.app import forwarding
from fastflight.app.config import ClusterSettings, RecordingSettings
from fastflight.client import FastFlightClient, IncompleteWarning
from fastflight.errors import BusyError
from fastflight.server.actions import CANCELLING
from fastflight.service.requests import DeviceSession, Sql
from fastflight.service.wire import encode
from tests.campaigns.fuzz.protobuf import field
from tests.support.clustered import TTL, Cluster, clustered
from tests.support.commands import FASTFLIGHT, run_command
from tests.support.refusals import refused
from tests.support.waiting import until

BOARDS = [f"board{number}" for number in range(4)]


@pytest.fixture
def silent() -> Iterator[str]:
    """An address that takes connections and says nothing, as a server behind a wrong address may."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"grpc://127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def cluster(tmp_path: Path, silent: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """alpha, and beta, which is reached at no address that it names. Both record all boards.

    For one test: alpha tries to connect to beta again and again, which the leak check would see between two.
    """
    monkeypatch.setattr(forwarding, "LISTING_SECONDS", 0.5)
    monkeypatch.setattr(forwarding, "FLIGHTS_SECONDS", 0.5)
    (tmp_path / "nats").mkdir()
    with clustered(tmp_path / "nats", BOARDS, ()) as cluster:
        for name in ("alpha", "beta"):
            location = silent if name == "beta" else ""
            settings = ClusterSettings(servers=cluster.nats.urls, name=name, ttl=TTL, location=location)
            recordings = RecordingSettings(folder=tmp_path / "recordings" / name, sync_ms=20)
            cluster.start(name, cluster=settings, recordings=recordings, record=BOARDS)
        cluster.settle()
        assert {cluster.owner(board) for board in BOARDS} == {"alpha", "beta"}
        yield cluster


def test_a_server_that_gives_no_answer_is_named_wherever_its_part_is_missing(cluster: Cluster, silent: str) -> None:
    check_answers(cluster, silent)
    check_commands(cluster, silent)
    check_cancellation(cluster)


def check_answers(cluster: Cluster, silent: str) -> None:
    said = f"beta gives no answer at {silent}"

    def of_owners(by_alpha: str | None, by_beta: str) -> dict[str, str | None]:
        """What is said of each board, without the reason. On a busy computer a board may move at any time."""
        return {board: by_alpha if cluster.owner(board) == "alpha" else by_beta for board in BOARDS}

    def short(text: str | None) -> str | None:
        """gRPC may find that a connection cannot be made before the time is over."""
        before, at, _ = (text or "").partition(f" at {silent}")
        return before + at if at else text

    alpha = cluster.servers["alpha"]
    with FastFlightClient(alpha.location) as client:
        until(lambda: {each.name: short(each.trouble) for each in client.devices()} == of_owners(None, said))
        states = ("recording", f"unknown: {said}")
        until(lambda: {each.name: short(each.state) for each in client.recordings()} == of_owners(*states))
        storage = until(lambda: (found := client.cluster_storage())["unanswered"] and found)
        (unanswered,) = storage["unanswered"]
        assert (unanswered["name"], unanswered["location"]) == ("beta", silent) and unanswered["why"]
        until(lambda: {*client.cluster_storage()["waiting"]} == {b for b in BOARDS if cluster.owner(b) == "alpha"})

        def column(query: str) -> list[dict[str, Any]]:
            return client.read_request(Sql(query=query)).to_arrow().to_pylist()

        devices = "select name, trouble from fastflight.devices"
        until(lambda: {each["name"]: short(each["trouble"]) for each in column(devices)} == of_owners(None, said))
        files = "select distinct device from fastflight.files"
        with pytest.warns(IncompleteWarning, match="the files of .* are not listed .beta gives no answer"):
            until(
                lambda: {each["device"] for each in column(files)} == {b for b in BOARDS if cluster.owner(b) == "alpha"}
            )
    with flight.connect(alpha.location) as plain:

        def notes() -> dict[str, str | None]:
            found: dict[str, str | None] = {}
            for info in plain.list_flights():
                command = {} if info.descriptor.path else json.loads(info.descriptor.command)
                if command.get("type") == "device.listing":
                    found[command["device"]] = short(json.loads(info.app_metadata or b"{}").get("trouble"))
            return found

        until(lambda: notes() == of_owners(None, said))
    with urllib.request.urlopen(f"{alpha.http}/cluster", timeout=60) as answer:
        assert [each["name"] for each in json.load(answer)["unanswered"]] == ["beta"]


def check_commands(cluster: Cluster, silent: str) -> None:
    location = cluster.servers["alpha"].location
    by_beta = [board for board in BOARDS if cluster.owner(board) == "beta"]
    said = f"beta gives no answer at {silent}: "
    for command in (("cluster", "status"), ("devices",)):
        done = run_command(
            [*FASTFLIGHT, *command, "--server", location],
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
            assert "check that the configuration of each node has sync_interval: always" in done.stdout


def test_a_server_with_the_address_of_another_one_is_named_and_never_asked(tmp_path: Path) -> None:
    """As on two computers that both listen on loopback: a request that is passed on would come back for ever."""
    with clustered(tmp_path, BOARDS, ("alpha",)) as cluster:
        alpha = cluster.servers["alpha"]
        beta = ClusterSettings(servers=cluster.nats.urls, name="beta", ttl=TTL, location=alpha.location)
        cluster.start("beta", cluster=beta)
        cluster.settle()
        its = next(board for board in BOARDS if cluster.owner(board) == "beta")
        said = f"its server, beta, gives {alpha.location} as its address, which is that of this server"
        with FastFlightClient(alpha.location) as client:
            with refused(BusyError, where=its) as raised:
                client.info(its)
            assert said in raised.value.what and "--cluster-location" in raised.value.what
            assert said in str({each.name: each.trouble for each in client.devices()}[its])
            assert said in str({each["name"]: each["why"] for each in client.cluster()["devices"]}[its])


def check_cancellation(cluster: Cluster) -> None:
    """Streams that may run at such a server are not called ended."""
    alpha = cluster.servers["alpha"]
    mine, its = (next(board for board in BOARDS if cluster.owner(board) == name) for name in ("alpha", "beta"))
    with flight.connect(alpha.location) as plain, FastFlightClient(alpha.location) as client:

        def cancel(board: str) -> bytes:
            ticket = encode(DeviceSession(device=board))
            endpoint = flight.FlightEndpoint(ticket, [])
            info = flight.FlightInfo(pa.schema([]), flight.FlightDescriptor.for_command(ticket), [endpoint], -1, -1)
            (result,) = plain.do_action(("CancelFlightInfo", field(1, info.serialize())))
            return bytes(result.body.to_pybytes())

        with client.session(mine):
            assert cancel(mine) == CANCELLING
        with pytest.raises(flight.FlightUnavailableError, match="a server without answer: beta"):
            cancel(its)
