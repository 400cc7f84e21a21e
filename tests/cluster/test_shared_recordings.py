"""Recordings that servers share: each row once, also if it comes late or NATS was away, with exact gaps."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path

import pytest

from fastflight.app.local_cluster import NatsNode, NatsServers, nats_servers
from fastflight.cluster.connection import NatsAddress
from fastflight.cluster.publishing import Publisher
from fastflight.cluster.recording_stream import STREAM
from fastflight.cluster.shared_recordings import DRAIN_SECONDS, SharedRecordings
from fastflight.errors import TransportError
from fastflight.log import Log, Range, Retention, Store
from tests.log.rows import batch_of, checked, missing, numbers
from tests.support.refusals import refused
from tests.support.waiting import until


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServers]:
    (tmp_path / "nats").mkdir()
    with nats_servers(tmp_path / "nats") as servers:
        yield servers


class Server:
    """What a server has of the shared recordings: its buffer, its copy, and the hand-over."""

    def __init__(self, nats: NatsServers, folder: Path, buffer_bytes: int | None = None) -> None:
        self.buffer = Store(folder, sync_ms=0, retention=Retention(max_bytes=buffer_bytes))
        self.shared = SharedRecordings(NatsAddress(nats.urls), folder.name, "fleet", Retention(), folder)
        self.shared.take(self.buffer)

    def record(self, first: int, rows: int = 10, name: str = "demo", paused: bool = False) -> Log:
        log = self.buffer.open(name)
        log.append(batch_of(name, first, rows), first=first, paused_until=first if paused else 0).result()
        return log

    def close(self) -> None:
        self.shared.close()
        self.buffer.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def has(server: Server, end: int, name: str = "demo") -> bool:
    """Whether the shared recording has all rows up to `end`."""
    if not server.shared._connection.is_connected:
        return False
    return name in server.shared.names() and server.shared.log(name).statistics().next_seq >= end


def test_rows_are_handed_over_with_their_numbers_and_gaps(nats: NatsServers, tmp_path: Path) -> None:
    with Server(nats, tmp_path / "a") as server:
        server.record(1000, paused=True)
        server.record(1010)
        server.record(1025)
        until(lambda: not server.shared.waiting("demo"))
        items = list(checked("demo", server.shared.log("demo").read()))
        assert missing(items) == [(0, 999, "unused"), (1020, 1024, "not read in time")]
        assert numbers(items) == {*range(1000, 1020), *range(1025, 1035)}
        assert server.shared.log("demo").statistics().lost == 5


def test_recording_goes_on_while_nats_is_away_and_is_handed_over_when_it_is_back(
    nats: NatsServers, tmp_path: Path
) -> None:
    with Server(nats, tmp_path / "a") as server:
        server.record(0)
        until(lambda: has(server, 10))
        nats.nodes[0].kill()
        until(lambda: not server.shared._connection.is_connected)
        for first in range(10, 500, 10):
            server.record(first)
        with refused(TransportError):
            server.shared.log("demo").statistics()
        waiting = server.shared.waiting("demo")
        assert sum(each.rows for each in waiting) == 490
        (oldest,) = server.buffer.log("demo").extents(Range(from_seq=10, until_seq=19))
        assert min(each.first_time or 0 for each in waiting) == oldest.first_time
        nats.nodes[0].start()
        until(lambda: not server.shared.waiting("demo"))
        items = list(checked("demo", server.shared.log("demo").read()))
        assert missing(items) == [] and numbers(items) == set(range(500))


def test_beyond_the_size_of_the_buffer_the_gap_says_how_many_rows_are_lost(nats: NatsServers, tmp_path: Path) -> None:
    with Server(nats, tmp_path / "a", buffer_bytes=8000) as server:
        server.record(0)
        until(lambda: has(server, 10))
        nats.nodes[0].kill()
        until(lambda: not server.shared._connection.is_connected)
        for first in range(10, 500, 10):
            log = server.record(first)
        assert server.buffer.sweep() > 0
        first = log.statistics().first_seq
        assert 10 < first < 500
        nats.nodes[0].start()
        until(lambda: not server.shared.waiting("demo"))
        items = list(checked("demo", server.shared.log("demo").read()))
        # Some rows were on their way to NATS already, and arrive.
        ((begin, end, reason),) = missing(items)
        assert begin >= 10 and (end, reason) == (first - 1, "cleared")
        assert numbers(items) == {*range(begin), *range(first, 500)}
        assert server.shared.log("demo").statistics().lost == first - begin


@contextlib.contextmanager
def hanging(nats: NatsServers) -> Iterator[None]:
    """NATS takes what it is sent, and answers nothing."""
    processes = [node.process for node in nats.nodes if node.process is not None]
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGCONT)


def test_a_sweep_that_waits_for_nats_does_not_keep_the_server_from_ending(nats: NatsServers, tmp_path: Path) -> None:
    with Server(nats, tmp_path / "a") as server, ThreadPoolExecutor(1) as pool:
        server.record(0)
        until(lambda: has(server, 10))
        with hanging(nats):
            sweeping = pool.submit(server.shared.sweep)
            until(lambda: server.shared._sweeping)
            server.shared.end_sweeps()
            assert isinstance(sweeping.exception(), CancelledError)  # not the error of NATS, after its patience
            with pytest.raises(CancelledError):
                server.shared.sweep()


def test_once_the_hand_over_has_failed_no_device_waits_for_it(nats: NatsServers, tmp_path: Path) -> None:
    with Server(nats, tmp_path / "a") as server:
        server.record(0)
        until(lambda: has(server, 10))
        assert server.shared.drain("demo")
        with hanging(nats):
            server.record(10)
            until(lambda: server.shared._publisher is not None and server.shared._publisher.trouble)
            asked = server.shared._publisher.drain
            waited: list[float] = []
            server.shared._publisher.drain = lambda names, seconds: waited.append(seconds) or asked(names, seconds)
            assert not server.shared.drain("demo") and waited == [0.0]
        until(lambda: not server.shared.waiting("demo"))
        assert server.shared.drain("demo")


def leader(nats: NatsServers) -> NatsNode:
    """The node that leads the stream of rows."""
    (account,) = nats.nodes[0].monitored("jsz?streams=true")["account_details"]
    (name,) = (each["cluster"]["leader"] for each in account["stream_detail"] if each["name"] == STREAM)
    return next(node for node in nats.nodes if node.name == name)


def test_acknowledged_rows_outlive_the_leader_that_is_killed(tmp_path: Path) -> None:
    """Rows wait in the buffer while another leader is elected."""

    def reads(server: Server, end: int, name: str) -> bool:
        with contextlib.suppress(TransportError):  # its connection was to the node
            return has(server, end, name)
        return False

    with nats_servers(tmp_path, nodes=3) as nats, Server(nats, tmp_path / "a") as server:
        server.record(0)
        until(lambda: has(server, 10))
        killed = leader(nats)
        killed.kill()
        until(lambda: reads(server, 10, "demo"))
        server.record(1000, name="other")
        until(lambda: not server.shared.waiting("other"))
        killed.start()
        with Server(nats, tmp_path / "b") as new:
            for name, begin, end in (("demo", 0, 10), ("other", 1000, 1010)):
                until(lambda end=end, name=name: reads(new, end, name))  # type: ignore[misc]
                assert numbers(checked(name, new.shared.log(name).read())) == set(range(begin, end))


def test_rows_that_come_late_have_their_place(nats: NatsServers, tmp_path: Path) -> None:
    """A server was killed with rows in its buffer, another one went on, and then the first one starts again."""
    with Server(nats, tmp_path / "a") as old:
        old.record(0)
        until(lambda: has(old, 10))
    with Store(tmp_path / "a", sync_ms=0) as buffer:
        buffer.open("demo").append(batch_of("demo", 10, 10)).result()
    with Server(nats, tmp_path / "b") as new:
        new.record(1_000_000, paused=True)
        until(lambda: has(new, 1_000_010))
        assert numbers(checked("demo", new.shared.log("demo").read())) == {*range(10), *range(1_000_000, 1_000_010)}
        with Server(nats, tmp_path / "a") as old:
            until(lambda: not old.shared.waiting("demo"))
            # The device comes back, and goes to and fro.
            for first, server in ((2_000_000, old), (3_000_000, new), (4_000_000, old)):
                server.record(first, paused=True)
                until(lambda first=first: has(new, first + 10))  # type: ignore[misc]
            for server in (old, new):
                recording = server.shared.log("demo")
                items = list(checked("demo", recording.read()))
                wanted = [range(20), *(range(first, first + 10) for first in range(1_000_000, 4_000_001, 1_000_000))]
                assert numbers(items) == {number for rows in wanted for number in rows}
                assert missing(items) == [
                    (before[-1] + 1, after[0] - 1, "unused") for before, after in zip(wanted, wanted[1:], strict=False)
                ]
                statistics = recording.statistics()
                assert (statistics.rows, statistics.lost, statistics.next_seq) == (60, 0, 4_000_010)
                assert numbers(recording.read(Range(15, 2_000_004))) == {
                    *range(15, 20),
                    *range(1_000_000, 1_000_010),
                    *range(2_000_000, 2_000_005),
                }
                ends = [extent.last for extent in recording.extents()]
                assert ends == sorted(ends) and ends[-1] == 4_000_009


@pytest.mark.parametrize("in_time", [True, False])
def test_a_server_that_ends_does_not_wait_again_for_what_cannot_be_handed_over(
    nats: NatsServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_time: bool
) -> None:
    """Nobody reads its boards meanwhile."""
    waits: list[float] = []

    async def drain(self: Publisher, devices: list[str], seconds: float) -> bool:
        waits.append(seconds)
        return in_time

    with Server(nats, tmp_path / "recordings") as server:
        until(lambda: server.shared._connection.is_connected)
        monkeypatch.setattr(Publisher, "drain", drain)
        assert server.shared.drain("demo") is in_time
    assert waits == [DRAIN_SECONDS, DRAIN_SECONDS if in_time else 0]


def test_a_stream_of_another_fleet_is_refused(nats: NatsServers, tmp_path: Path) -> None:
    with Server(nats, tmp_path / "a") as server:
        server.record(0)
        until(lambda: has(server, 10))
        other = SharedRecordings(NatsAddress(nats.urls), "c", "another", Retention(), tmp_path / "c")
        until(lambda: other._connection.is_connected)
        with pytest.raises(Exception, match="belongs to the fleet 'fleet', and not to the fleet 'another'") as error:
            other.names()
        assert "account of its own" in str(error.value)
        other.close()
