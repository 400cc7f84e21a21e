"""Recordings that the servers of a cluster share: read anywhere, whole when a board moves, and while NATS is away."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow.flight as flight
import pyarrow.parquet as pq
import pytest

from fastflight.app.config import ClusterSettings, RecordingSettings
from fastflight.app.local_cluster import NatsServers, nats_servers
from fastflight.app.running import RunningServer
from fastflight.client import FastFlightClient, Recorded
from fastflight.errors import BusyError, TransportError
from tests.support.refusals import refused
from tests.support.servers import serving
from tests.support.waiting import until

BOARD = "demo"
# Long enough that no lease ends because the computer is busy.
TTL = 3.0


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServers]:
    (tmp_path / "nats").mkdir()
    with nats_servers(tmp_path / "nats") as servers:
        yield servers


class Servers:
    """Servers of one cluster in this process, which all record the same board."""

    def __init__(self, nats: NatsServers, url: str, folder: Path, local: bool = False) -> None:
        self.nats, self.url, self.folder, self.local = nats, url, folder, local
        self.running: dict[str, RunningServer] = {}

    def start(self, name: str) -> RunningServer:
        own = frozenset([BOARD]) if self.local else frozenset()
        server = serving(
            {BOARD: self.url},
            cluster=ClusterSettings(servers=self.nats.urls, name=name, ttl=TTL, local=own),
            recordings=RecordingSettings(folder=self.folder, sync_ms=20),
            record=[BOARD],
            shards=1,
        )
        self.running[name] = server.__enter__()
        until(lambda: self.lists(self.running[name]))  # it connects to NATS after it has begun to listen
        return self.running[name]

    def recorded(self, server: RunningServer) -> Recorded | None:
        with FastFlightClient(server.location) as client:
            return next(iter(client.recordings()), None)

    def owner(self) -> str:
        def found() -> str:
            for server in self.running.values():
                assert server.member is not None
                for device in server.member.status()["devices"]:
                    if device["owner"] in self.running:
                        return str(device["owner"])
            return ""

        return until(found)

    def lists(self, server: RunningServer) -> bool:
        """Whether a server can list the recordings."""
        with contextlib.suppress(TransportError), FastFlightClient(server.location) as client:
            client.recordings()
            return True
        return False

    def grows(self, server: RunningServer, by: int = 20) -> Recorded:
        """Wait until the recording, as this server sees it, has `by` more rows; return it."""
        before = self.recorded(server)
        rows = by + (0 if before is None else before.rows)

        def grown() -> Recorded | None:
            now = self.recorded(server)
            return now if now is not None and now.rows >= rows else None

        found = until(grown)
        assert found is not None
        return found

    def close(self) -> None:
        for server in self.running.values():
            server.close()


@pytest.fixture
def board() -> Iterator[str]:
    """A board on the network that prints 50 lines each second."""
    with serving({BOARD: {"url": "sim:?telemetry=50", "bridge": {"socket": 0}}}) as boards:
        yield f"socket://127.0.0.1:{boards.bridges[BOARD].socket}"


def test_any_server_reads_what_the_owner_records_also_after_the_board_has_moved(
    nats: NatsServers, board: str, tmp_path: Path
) -> None:
    servers = Servers(nats, board, tmp_path / "recordings")
    try:
        for name in ("alpha", "beta"):
            servers.start(name)
        owner = servers.owner()
        other = next(server for name, server in servers.running.items() if name != owner)
        found = servers.grows(other)
        assert (found.state, found.lost) == ("recording", 0)
        with FastFlightClient(other.location) as client:
            storage = client.cluster_storage()
        assert storage["waiting"][BOARD] >= 0
        assert {"fastflight", "ff-owners"} == {each["name"] for each in storage["replicas"] if each["current"] == 1}
        servers.running.pop(owner).close()
        moved = servers.grows(other, 60)
        # All that the first owner has read was handed over before it gave the board up.
        assert moved.lost == 0 and moved.next_seq > 1_000_000
        with FastFlightClient(other.location) as client:
            table = client.recording(BOARD).to_arrow()
            seq = table["seq"].to_pylist()
            assert seq == sorted(set(seq)) and any(n < 1_000_000 for n in seq) and any(n > 1_000_000 for n in seq)
            assert len(client.recording(BOARD, from_seq=seq[5], to_seq=seq[9]).to_arrow()) == 5
            target = tmp_path / "demo.parquet"
            client.recording(BOARD, to_seq=seq[-1]).to_arrow()
            pq.write_table(table, target)
            assert pq.read_table(target)["seq"].to_pylist() == seq
    finally:
        servers.close()


def test_two_servers_of_one_name_on_one_computer_say_what_to_do(nats: NatsServers, board: str, tmp_path: Path) -> None:
    servers = Servers(nats, board, tmp_path / "recordings")
    try:
        servers.start("alpha")
        with refused(BusyError, where=str(tmp_path / "recordings" / "alpha")) as raised:
            servers.start("alpha")
        assert "another process records there: the server at" in raised.value.what
        assert "--cluster-name" in raised.value.hint and "--recordings" in raised.value.hint
    finally:
        servers.close()


def test_a_board_on_a_cable_is_recorded_while_nats_is_away(nats: NatsServers, tmp_path: Path) -> None:
    servers = Servers(nats, "sim:?telemetry=50", tmp_path / "recordings", local=True)
    try:
        alpha = servers.start("alpha")
        before = servers.grows(alpha)
        nats.nodes[0].kill()
        member = alpha.member
        assert member is not None
        until(lambda: member.status()["trouble"])
        with FastFlightClient(alpha.location) as client:
            storage = until(lambda: (found := client.cluster_storage())["waiting"][BOARD] > 20 and found)
            assert storage["unanswered"] == [] and storage["oldest_waiting"][BOARD]["seconds"] > 0
            with refused(TransportError):
                client.recordings()
            with flight.connect(alpha.location) as plain:
                assert list(plain.list_flights(b"nothing*")) == []  # what else there is can still be listed
            (device,) = client.devices()
            assert device.open and device.recording == "recording"
            with client.session(BOARD, format="lines") as live:
                lines = [batch.num_rows for batch, _ in zip(live, range(5), strict=False)]
            assert sum(lines) > 0
        nats.nodes[0].start()
        until(lambda: member.status()["trouble"] is None)
        until(lambda: member.token(BOARD) > 0)
        until(lambda: servers.lists(alpha))  # by another connection
        after = servers.grows(alpha)
        assert after.lost == 0 and after.next_seq == after.rows > before.rows
    finally:
        servers.close()
