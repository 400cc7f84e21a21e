"""Which of several servers owns a device: in one process, over one NATS server, with leases of a second."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace

import pytest

from fastflight.app.local_cluster import NatsServers, nats_servers
from fastflight.cluster.connection import ClusterConnection, NatsAddress
from fastflight.cluster.ownership import Ownership, elapsed
from fastflight.cluster.placement import ranked
from fastflight.cluster.profile import Profile, digest_of
from fastflight.errors import RequestError, TransportClosed
from tests.support.refusals import refused
from tests.support.waiting import auntil

TTL = 1.0
NAMES = [f"board{number}" for number in range(12)]


class Boards:
    """The boards of all servers: they count how many servers use one at the same time."""

    def __init__(self) -> None:
        self.users: dict[str, set[str]] = {name: set() for name in NAMES}
        self.shared = 0
        self.first: dict[str, list[int]] = {name: [] for name in NAMES}
        self.changing = threading.Lock()


class FakeDevices:
    """The devices of one server. Those in `working` are in the middle of a transfer."""

    def __init__(self, server: str, boards: Boards) -> None:
        self.server, self.boards = server, boards
        self.guards: dict[str, Callable[[], None]] = {}
        self.working: set[str] = set()
        self.failing: dict[str, Exception] = {}
        self.disconnected: set[str] = set()
        self.may_end = threading.Event()
        self.may_end.set()

    def take(self, device: str, first_seq: int, guard: Callable[[], None]) -> None:
        if device in self.failing:
            raise self.failing[device]
        self.guards[device] = guard
        with self.boards.changing:
            self.boards.users[device].add(self.server)
            self.boards.shared += len(self.boards.users[device]) > 1
            self.boards.first[device].append(first_seq)

    def disconnect(self, device: str) -> None:
        self.disconnected.add(device)

    def give(self, device: str, lost: bool) -> None:
        self.may_end.wait()
        assert not lost or device in self.disconnected
        with self.boards.changing:
            self.boards.users[device].discard(self.server)

    def is_idle(self, device: str) -> bool:
        return device not in self.working

    def next_seq(self, device: str) -> int:
        return self.boards.first[device][-1] + 10


class Member:
    """One server of the cluster."""

    def __init__(self, name: str, boards: Boards, nats: NatsServers, fleet: str = "fleet", **profile: object) -> None:
        devices = {each: digest_of(each) for each in NAMES}
        self.devices = FakeDevices(name, boards)
        self.connection = ClusterConnection(NatsAddress(nats.urls), name)
        described = Profile(name, f"{name} {id(self)}", **{"devices": devices, **profile})  # type: ignore[arg-type]
        self.ownership = Ownership(self.connection, described, self.devices, fleet, ttl=TTL)
        self.connection.open()
        self.running = asyncio.ensure_future(self.ownership.run())

    @property
    def owned(self) -> set[str]:
        return {name for name in NAMES if self.ownership.owns(name)}

    async def die(self) -> None:
        """End without a word, as by a kill."""
        self.running.cancel()
        await asyncio.wait([self.running])
        await self.connection.aclose()

    async def close(self) -> None:
        await self.ownership.leave()
        await self.die()


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServers]:
    with nats_servers(tmp_path_factory.mktemp("nats")) as servers:
        yield servers


@contextlib.asynccontextmanager
async def members(*started: Member) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for member in started:
            if not member.running.done():
                await member.close()


def test_a_death_and_a_join_move_only_what_they_must(nats: NatsServers) -> None:
    async def scenario() -> None:
        boards = Boards()
        a, b = (Member(name, boards, nats) for name in "ab")
        async with members(a, b):
            await auntil(lambda: len(a.owned) + len(b.owned) == 12)
            fair = {name: ranked(name, ["a", "b"])[0] for name in NAMES}
            await auntil(lambda: all(name in (a if fair[name] == "a" else b).owned for name in NAMES))
            c = Member("c", boards, nats)
            # A board with a transfer does not move.
            moving = [name for name in NAMES if ranked(name, "abc")[0] == "c"]
            assert len(moving) > 1
            for member in (a, b):
                member.devices.working = {moving[0]}
            async with members(c):
                await auntil(lambda: c.owned == set(moving[1:]))
                a.devices.working = b.devices.working = set()
                await auntil(lambda: c.owned == set(moving))
                kept = a.owned | b.owned
                await c.die()
                boards.users = {name: users - {"c"} for name, users in boards.users.items()}
                await auntil(lambda: len(a.owned) + len(b.owned) == 12)
                assert kept <= a.owned | b.owned
                # The dead server, if it still ran, would not write any more, and numbers are not used twice.
                with refused(TransportClosed):
                    c.devices.guards[moving[0]]()
                assert all(seqs == sorted(set(seqs)) for seqs in boards.first.values())
        assert boards.shared == 0

    asyncio.run(scenario())


def test_a_server_that_is_cut_off_stops_writing_before_another_one_begins(nats: NatsServers) -> None:
    async def scenario() -> None:
        boards = Boards()
        a, b = (Member(name, boards, nats) for name in "ab")
        async with members(a, b):
            await auntil(lambda: len(a.owned) + len(b.owned) == 12 and a.owned)
            board = min(a.owned)
            a.devices.guards[board]()
            await a.connection.aclose()
            await auntil(lambda: board in b.owned)
            with refused(TransportClosed):
                a.devices.guards[board]()
            await auntil(lambda: not a.owned and boards.users[board] == {"b"})
        assert boards.shared == 0

    asyncio.run(scenario())


def test_a_server_without_its_lease_closes_all_lines_before_it_waits_for_anything(nats: NatsServers) -> None:
    async def scenario() -> None:
        a = Member("a", Boards(), nats)
        async with members(a):
            await auntil(lambda: len(a.owned) == 12)
            a.devices.may_end.clear()
            await a.connection.aclose()
            await auntil(lambda: a.devices.disconnected == set(NAMES))
            assert len(a.devices.boards.users["board0"]) == 1
            a.devices.may_end.set()

    asyncio.run(scenario())


def test_the_time_in_which_a_computer_sleeps_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """`CLOCK_MONOTONIC` stands still meanwhile on Linux."""
    clocks = {time.CLOCK_MONOTONIC: 5.0, getattr(time, "CLOCK_BOOTTIME", -1): 3605.0}
    monkeypatch.setattr(time, "clock_gettime", clocks.__getitem__)
    assert elapsed() == clocks[max(clocks, key=lambda each: clocks[each])]


def test_a_clean_end_lets_others_take_over_at_once(nats: NatsServers) -> None:
    async def scenario() -> None:
        boards = Boards()
        a, b = (Member(name, boards, nats) for name in "ab")
        async with members(b):
            await auntil(lambda: len(a.owned) + len(b.owned) == 12 and a.owned)
            await a.close()
            await auntil(lambda: len(b.owned) == 12)
            # Given up, and not ended by another server.
            gone = b.ownership.directory.server("a")
            assert gone is not None and gone.ended and gone.value["by"] == "a"
        assert boards.shared == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("error", [RequestError("the board is broken"), ZeroDivisionError("a defect")])
def test_a_board_that_cannot_be_taken_goes_to_another_server(nats: NatsServers, error: Exception) -> None:
    async def scenario() -> None:
        boards = Boards()
        a, b = (Member(name, boards, nats) for name in "ab")
        board = next(name for name in NAMES if ranked(name, "ab")[0] == "a")
        a.devices.failing = {board: error}
        async with members(a, b):
            await auntil(lambda: board in b.owned and a.owned | b.owned == set(NAMES))

    asyncio.run(scenario())


def test_only_the_server_with_the_board_owns_it(nats: NatsServers) -> None:
    async def scenario() -> None:
        boards = Boards()
        a = Member("a", boards, nats, local=frozenset(NAMES))
        b = Member("b", boards, nats, unreachable=frozenset(NAMES))
        async with members(b):
            async with members(a):
                await auntil(lambda: len(a.owned) == 12)
                assert b.ownership.owner(NAMES[0]) is not None and not b.owned
            await auntil(lambda: b.ownership.owner(NAMES[0]) is None)
            assert not b.owned and b.ownership.differing == {}

    asyncio.run(scenario())


def test_wrong_clusters_are_named(nats: NatsServers) -> None:
    async def scenario() -> None:
        boards = Boards()
        a, twin = Member("a", boards, nats), Member("a", boards, nats, location="grpc://twin:1")
        other = Member("o", boards, nats, fleet="another")
        differing = Member("d", boards, nats, devices={**dict.fromkeys(NAMES, digest_of("other")), "more": "1"})
        async with members(a, twin, other, differing):
            await auntil(lambda: "has the name 'a'" in a.ownership.trouble + twin.ownership.trouble)
            await auntil(
                lambda: "belongs to the fleet 'fleet', and not to the fleet 'another'" in other.ownership.trouble
            )
            loner = a if not a.ownership.trouble else twin
            await auntil(lambda: loner.ownership.differing.get("d"))
            found = loner.ownership.differing["d"]
            assert "board0: other settings" in found and "more: only at d" in found

    asyncio.run(scenario())


def test_a_device_that_changes_is_taken_anew_and_one_that_is_removed_is_given_up(nats: NatsServers) -> None:
    async def scenario() -> None:
        boards = Boards()
        a = Member("a", boards, nats)
        async with members(a):
            await auntil(lambda: len(a.owned) == 12)
            changed = {**a.ownership.profile.devices, "board0": digest_of("another URL")}
            del changed["board1"]
            a.ownership.describe(replace(a.ownership.profile, devices=changed))
            await auntil(lambda: len(boards.first["board0"]) == 2 and a.owned == set(NAMES) - {"board1"})
            assert len(boards.first["board2"]) == 1 and not boards.users["board1"]
        assert boards.shared == 0

    asyncio.run(scenario())
