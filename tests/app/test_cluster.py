"""Three servers of one cluster in this process, with boards behind TCP sockets that they all reach."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from fastflight.app.config import ClusterSettings
from fastflight.client import FastFlightClient
from fastflight.client.connection import REUSE
from fastflight.errors import BusyError, RequestError
from fastflight_benchmark import mock
from fastflight_benchmark.mock import Mock
from tests.support.clustered import TTL, Cluster, clustered
from tests.support.refusals import refused
from tests.support.servers import serving
from tests.support.waiting import until

BOARDS = [f"board{number}" for number in range(6)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with clustered(tmp_path_factory.mktemp("nats"), BOARDS, ("alpha", "beta", "gamma")) as cluster:
        cluster.open_connections()
        yield cluster


def test_every_server_answers_for_every_device(cluster: Cluster) -> None:
    """With the addresses of all of them. `test_any_server` compares the answers to all kinds of requests."""
    board = BOARDS[0]
    owner = cluster.owner(board)
    answers = set()
    for server in cluster.servers.values():
        with FastFlightClient(server.location) as client:
            assert sorted(each.name for each in client.devices()) == BOARDS
            rows = client.read(board, "/readings.csv", interrupt=True)
            answers.add((rows.to_arrow().num_rows, str(rows.schema), rows.summary["sha256"]))
            with client.interact(board) as repl:
                repl.send("\x03\x03print(6 * 7)\r")
                assert b"42" in repl.read_until(b"42", timeout=30)
        with flight.connect(server.location) as plain:
            info = plain.get_flight_info(flight.FlightDescriptor.for_path(board, "/readings.csv"))
            found = [location.uri.decode() for location in info.endpoints[0].locations]
            assert found[0] == cluster.servers[owner].location and found[-1] == REUSE and len(set(found)) == 4
            flights = [each.descriptor.path for each in plain.list_flights(f"{board}/*.csv".encode())]
            assert [board.encode(), b"/readings.csv"] in flights
    assert len(answers) == 1


def test_a_fleet_is_read_through_any_server(cluster: Cluster) -> None:
    for server in cluster.servers.values():
        with FastFlightClient(server.location) as client:
            rows = client.read_fleet("*", "/readings.csv", interrupt=True)
            table = rows.to_arrow()
            assert sorted(set(table["device"].to_pylist())) == BOARDS and not rows.summary.get("failed")


def test_the_files_of_all_servers_decide_the_types_of_a_fleet(cluster: Cluster) -> None:
    values = {board: [at] if at else [0.5] for at, board in enumerate(BOARDS)}
    (server, *_) = cluster.servers.values()
    with FastFlightClient(server.location) as client:
        for board, own in values.items():
            client.write(board, "/unlike.csv", pa.table({"v": own, f"only_{board}": own}), interrupt=True)
        table = client.read_fleet("*", "/unlike.csv", interrupt=True, ordered=True).to_arrow()
    assert table.schema.names == ["device", "v", *(f"only_{board}" for board in BOARDS)]
    assert table.schema.field("v").type == pa.float64()
    assert table["v"].to_pylist() == [own[0] for own in values.values()]
    assert all(table[f"only_{board}"].null_count == len(BOARDS) - 1 for board in BOARDS)


def test_a_live_session_goes_on_when_its_device_moves(tmp_path: Path) -> None:
    board = BOARDS[2]
    with clustered(tmp_path, [board], ("alpha", "beta")) as cluster:
        follow_a_move(cluster, board)


def follow_a_move(cluster: Cluster, board: str) -> None:
    owner = cluster.owner(board)
    rows: list[pa.RecordBatch] = []
    # The numbers at which it went on, each with the count of the rows before.
    outages: list[tuple[int, int]] = []
    with FastFlightClient(cluster.other_than(owner).location) as client:
        session = client.session(board, reconnect=True)

        def read(until_outages: int) -> None:
            more = 5
            for batch, note in session.pieces():
                if note and "gap" in note:
                    outages.append((note["gap"]["first"], len(rows)))
                rows.extend(batch.slice(at, 1) for at in range(batch.num_rows))
                more -= batch.num_rows if len(outages) >= until_outages else 0
                if more <= 0:
                    return

        read(0)
        before = len(outages)  # a busy computer may lose a lease
        cluster.servers.pop(owner).close()
        read(before + 1)
        session.cancel()
    assert cluster.owner(board) != owner
    seqs = [row["seq"][0].as_py() for row in rows]
    assert seqs == sorted(set(seqs))
    assert all(max(seqs[:at], default=-1) < following <= min(seqs[at:]) for following, at in outages)


def test_a_server_without_nats_says_so_and_serves_what_it_can() -> None:
    alone = ClusterSettings(servers=("nats://127.0.0.1:1",), name="alpha", ttl=TTL)
    with (
        serving({"board": "sim:"}, cluster=alone, sources=(mock.SOURCE,)) as server,
        FastFlightClient(server.location) as client,
    ):
        until(lambda: "cannot be used" in str(client.cluster()["trouble"]))
        assert [each.name for each in client.devices()] == ["board"]
        assert client.read_request(Mock(total_rows=10)).to_arrow().num_rows == 10
        with refused(BusyError, where="board") as raised:
            client.read("board", "/readings.csv").to_arrow()
        assert "NATS cannot be used" in str(raised.value)
        with pytest.raises(RequestError, match="come from the fleet file"):
            client.add_device("more", "sim:")
