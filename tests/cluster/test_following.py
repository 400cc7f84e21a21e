"""A server's copy of the recordings, when NATS has lost, changed or forgotten messages."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from fastflight.app.local_cluster import NatsServers, nats_servers
from fastflight.cluster.recording_stream import STREAM
from fastflight.cluster.shipment import MAGIC
from fastflight.errors import TransportError
from tests.cluster.test_shared_recordings import Server, has
from tests.log.rows import checked, missing, numbers
from tests.support.waiting import until


def filled(nats: NatsServers, folder: Path) -> None:
    """Five messages of ten rows."""
    with Server(nats, folder) as server:
        for first in range(0, 50, 10):
            server.record(first)
            until(lambda first=first: has(server, first + 10))  # type: ignore[misc]


def flip(nats: NatsServers, folder: Path, message: int, *, killed: bool) -> None:
    """Stop the first node, flip a bit in one of its messages, and start it again."""
    node = nats.nodes[0]
    node.kill() if killed else node.stop()
    (file,) = (folder / node.name).glob("**/streams/fastflight/msgs/*.blk")
    data = bytearray(file.read_bytes())
    begins = [at for at in range(len(data)) if data.startswith(MAGIC, at)]
    data[begins[message] + 40] ^= 1
    file.write_bytes(data)
    node.start()
    until(lambda: all(node.is_healthy() for node in nats.nodes))


def test_a_message_that_nats_leaves_out_is_a_gap_for_new_servers_alone(tmp_path: Path) -> None:
    with nats_servers(tmp_path) as nats:
        filled(nats, tmp_path / "a")
        flip(nats, tmp_path, 2, killed=False)
        with Server(nats, tmp_path / "a") as old, capture_logs() as logs, Server(nats, tmp_path / "b") as new:
            until(lambda: has(old, 50) and has(new, 50))
            assert numbers(checked("demo", old.shared.log("demo").read())) == set(range(50))
            assert missing(checked("demo", new.shared.log("demo").read())) == [(20, 29, "not read in time")]
            assert [entry["messages"] for entry in logs if "damaged" in entry["event"]] == [1]


def test_a_message_that_one_of_three_nodes_leaves_out_is_got_from_another(tmp_path: Path) -> None:
    with nats_servers(tmp_path, nodes=3) as nats:
        filled(nats, tmp_path / "a")
        flip(nats, tmp_path, 2, killed=False)
        with Server(nats, tmp_path / "b") as server:
            until(lambda: has(server, 50))
            assert numbers(checked("demo", server.shared.log("demo").read())) == set(range(50))


def test_rows_after_an_end_that_nats_has_lost_are_not_missed(tmp_path: Path) -> None:
    """A node that was killed reads its files again, and forgets everything from the first flipped bit on."""
    with nats_servers(tmp_path) as nats:
        filled(nats, tmp_path / "a")
        with Server(nats, tmp_path / "b") as other:
            until(lambda: has(other, 50))
        flip(nats, tmp_path, 2, killed=True)
        with Server(nats, tmp_path / "a") as server:
            for first in range(50, 100, 10):  # these take the sequence numbers of what was lost
                server.record(first)
                until(lambda first=first: has(server, first + 10))  # type: ignore[misc]
        with Server(nats, tmp_path / "b") as other, Server(nats, tmp_path / "c") as new:
            until(lambda: has(other, 100) and has(new, 100))
            assert numbers(checked("demo", other.shared.log("demo").read())) == set(range(100))
            assert missing(checked("demo", new.shared.log("demo").read())) == [(20, 49, "not read in time")]


@pytest.mark.parametrize("runs", [True, False])
def test_a_stream_that_was_deleted_comes_back(tmp_path: Path, runs: bool) -> None:
    def delete(server: Server) -> None:
        async def work() -> None:
            await server.shared._connection.jetstream.delete_stream(STREAM)

        server.shared._call(work())

    with nats_servers(tmp_path) as nats, Server(nats, tmp_path / "b") as other:
        with Server(nats, tmp_path / "a") as server:
            server.record(0)
            until(lambda: has(server, 10) and has(other, 10))
            delete(server)
            if runs:
                server.record(10)
                until(lambda: has(server, 20))
        with Server(nats, tmp_path / "a") as server:
            server.record(20)
            until(lambda: has(server, 30) and has(other, 30))
            for each in (server, other):
                rows = numbers(checked("demo", each.shared.log("demo").read()))
                assert rows == {*range(20 if runs else 10), *range(20, 30)}


def test_a_copy_that_is_too_far_behind_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with nats_servers(tmp_path) as nats, Server(nats, tmp_path / "a") as server, Server(nats, tmp_path / "b") as other:
        until(lambda: other.shared._connection.is_connected)
        monkeypatch.setattr(type(other.shared._follower), "_add", lambda self, page: self.nothing)
        monkeypatch.setattr("fastflight.cluster.following.PATIENCE_SECONDS", 0.0)
        server.record(0)
        until(lambda: not server.shared.waiting("demo"))
        with pytest.raises(TransportError, match="has not got all recordings yet: 1 messages"):
            other.shared.names()


def test_a_server_reads_on_where_it_ended(tmp_path: Path) -> None:
    with nats_servers(tmp_path) as nats:
        filled(nats, tmp_path / "a")
        for _ in range(2):
            with Server(nats, tmp_path / "b") as server:
                until(lambda: has(server, 50))
                position = server.shared._follower._position
                assert (position.seq, position.time > 0) == (5, True)
        for broken in (b"{", b"[]", b'{"created": 1}'):
            (tmp_path / "b" / "fleet" / "position.json").write_bytes(broken)
            with Server(nats, tmp_path / "b") as server:
                until(lambda: has(server, 50))
                assert numbers(checked("demo", server.shared.log("demo").read())) == set(range(50))
