"""Owners of devices under lost, late and reordered requests, stalls, deaths and the loss of the bucket: without I/O."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fastflight.cluster.claims import (
    FIRST_PUTS,
    MAX_MOVING,
    MAX_PUTS,
    MAX_STEPS,
    RESERVED_NUMBERS,
    SLOW_SECONDS,
    Begin,
    End,
    Pace,
)
from fastflight.cluster.entries import SERVER, key_of
from fastflight.cluster.placement import ranked
from tests.cluster.modelled import TTL, Network, Server

BOARDS = [f"board{number}" for number in range(3)]
NAMES = st.sampled_from("abc")


def whole(network: Network) -> bool:
    """Whether each device is where it should be."""
    names = "".join(network.servers)
    return all(network.writers(device) == [ranked(device, names)[0]] for device in network.devices)


def test_devices_spread_over_the_servers_that_start() -> None:
    network = Network("abc", [f"board{number}" for number in range(20)])
    network.run(TTL - 0.5)
    assert not any(map(network.writers, network.devices)), "another server might rely on a bucket that was lost"
    network.run(2)
    assert whole(network)


def test_a_late_renewal_of_a_dead_server_is_refused() -> None:
    network = Network("ab", BOARDS)
    network.run(6)
    a = network.servers["a"]
    assert network.owned("a")
    network.now += 1.0
    a.look(network.now)
    (renewal,) = a.requests
    network.delay(renewal)
    network.run(TTL + 1, "b")
    assert network.owned("b") == set(BOARDS)
    before = network.bucket.entries[key_of(SERVER, "a")]
    assert before[1]["by"] == "b"
    network.arrive(renewal)
    assert network.bucket.entries[key_of(SERVER, "a")] == before
    assert not network.owned("a")


def test_a_renewal_that_arrives_in_time_keeps_the_devices() -> None:
    network = Network("ab", BOARDS)
    network.run(6)
    kept = network.owned("a")
    network.now += 1.0
    a, b = network.servers["a"], network.servers["b"]
    a.look(network.now)
    network.delay(a.requests[0])
    network.arrive(network.requests[0])
    tried = 0
    for _ in range(int(TTL / 0.25)):  # b holds its own lease, and sees nothing
        network.now += 0.25
        b.look(network.now)
        while b.requests:
            tried += b.requests[0].put.content.get("ended", False)
            network.arrive(b.requests[0])
    assert tried
    assert network.bucket.entries[key_of(SERVER, "a")][1].get("ended") is None
    network.run(3)
    assert network.owned("a") == kept


def test_entries_of_an_earlier_term_do_not_count() -> None:
    network = Network("ab", BOARDS)
    network.run(6)
    network.now += TTL  # all of them are stopped for a while
    assert not any(map(network.writers, BOARDS))
    for server in network.servers.values():
        while not server.membership.lease.is_held(server.clock + network.now):
            (put,) = server.membership.look(server.clock + network.now)
            revision = network.bucket.put(put)
            assert revision is not None
            server.membership.stored(put, revision, server.clock + network.now)
    assert not any(map(network.writers, BOARDS)), "with new leases and old entries"
    network.run(TTL + 2)
    assert whole(network)
    terms = {entry["term"] for key, (_, entry) in network.bucket.entries.items() if key.startswith("device.")}
    assert terms == {server.membership.lease.term for server in network.servers.values()}


def test_an_entry_that_was_seen_before_its_owners_lease_is_not_free() -> None:
    network = Network("ab", BOARDS)
    network.run(6)
    network.stop("a")
    network.run(TTL + 2, "b")
    b = network.servers["b"]
    # a starts again and takes its devices; b reads the entries of the devices first, because the lease was renewed.
    network.start("a")
    network.run(TTL + 0.5, "a")
    for device in BOARDS:
        b.boards.working.add(("b", device))
    assert network.bucket.entries[key_of(SERVER, "a")][0] > b.cursor
    b.read(network.now, most=1)
    free = [device for device in BOARDS if b.directory.free_since(device, b.clock + network.now) is not None]
    assert free == []


def test_a_delayed_request_to_give_up_meets_another_revision() -> None:
    network = Network("a", BOARDS[:1])
    network.run(6)
    (a,) = network.servers.values()
    (device,) = BOARDS[:1]
    a.refusing.add(device)
    a.membership.describe(replace(a.membership.profile, devices={device: "other settings"}))
    network.now += 0.5
    a.look(network.now)
    a.carry_out(a.calls.pop(0), network.now)
    a.look(network.now)  # taken anew, and that fails
    while a.requests:
        network.arrive(a.requests[0])
    a.look(network.now)
    (begin,) = a.calls
    assert isinstance(begin, Begin) and begin.first_seq == RESERVED_NUMBERS
    a.carry_out(a.calls.pop(0), network.now)
    a.look(network.now)
    release = next(each for each in a.requests if each.put.content.get("server") == "")
    network.delay(release)
    a.refusing.clear()
    network.run(40)
    assert network.owned("a") == {device}
    network.arrive(release)
    network.run(1)
    assert network.owned("a") == {device}


def test_a_device_that_fails_goes_to_the_next_server() -> None:
    network = Network("ab", BOARDS)
    board = next(name for name in BOARDS if ranked(name, "ab")[0] == "a")
    network.servers["a"].refusing.add(board)
    network.run(3 * TTL)
    assert network.writers(board) == ["b"]


def test_a_board_of_one_server_stays_open_when_its_lease_has_ended() -> None:
    network = Network("a", BOARDS, {"a": frozenset(BOARDS)})
    network.run(6)
    (a,) = network.servers.values()
    network.now += TTL
    a.look(network.now)
    assert not a.calls and not network.owned("a")
    network.run(2)
    assert network.owned("a") == set(BOARDS)
    claim = a.claims.claim(BOARDS[0])
    assert claim is not None and claim.first == 0, "its traffic goes on"


def test_without_its_lease_a_server_gives_all_devices_up_at_once() -> None:
    network = Network("a", [f"board{number}" for number in range(2 * MAX_STEPS)])
    network.run(6)
    (a,) = network.servers.values()
    network.now += TTL
    a.look(network.now)
    assert len(a.calls) == 2 * MAX_STEPS and all(isinstance(each, End) and each.lost for each in a.calls)


def test_numbers_are_reserved_again_before_they_are_used() -> None:
    network = Network("a", BOARDS)
    network.run(6)
    (a,) = network.servers.values()
    a.next[BOARDS[0]] = RESERVED_NUMBERS * 2 // 3
    network.run(1)
    entry = a.directory.device(BOARDS[0])
    assert entry is not None and (entry.first, entry.limit) == (0, RESERVED_NUMBERS * 2 // 3 + RESERVED_NUMBERS)
    assert network.owned("a") == set(BOARDS)
    network.stop("a")
    network.start("b")
    network.run(2 * TTL + 2)
    assert network.servers["b"].next[BOARDS[0]] == entry.limit


def test_steps_and_moves_are_bounded() -> None:
    network = Network("a", [f"board{number}" for number in range(2 * MAX_STEPS)])
    network.run(TTL)
    (a,) = network.servers.values()
    network.now += 0.25
    a.look(network.now)
    network.arrive(a.requests[0])
    assert len(a.claims.look(a.clock + network.now, puts=0)) == 0
    a.look(network.now)
    assert len([each for each in a.requests if not each.is_own]) == MAX_STEPS
    network.run(2)
    assert len(network.owned("a")) == 2 * MAX_STEPS
    network.start("b")
    working = {("a", device) for device in network.devices}
    for seconds, most in ((TTL + 0.5, 0), (TTL / 2, MAX_MOVING)):
        a.boards.working |= working
        network.run(seconds)
        a.boards.working.clear()
        a.look(network.now)
        assert len(a.calls) == most, "b may still be starting, and then devices move in batches"
    assert all(isinstance(each, End) and each.to == "b" for each in a.calls)
    network.run(3)
    assert whole(network)


def test_all_is_given_up_at_the_end() -> None:
    network = Network("a", BOARDS)
    network.run(6)
    (a,) = network.servers.values()
    a.claims.is_leaving = True
    network.round()
    network.round()
    assert not a.claims.in_use and not any(map(network.writers, BOARDS))
    entries = [a.directory.device(device) for device in BOARDS]
    assert all(entry is not None and not entry.server for entry in entries)


class Cluster(RuleBasedStateMachine):
    """Three servers and three boards. One board is on a cable of a, which no other server reaches."""

    @initialize()
    def start(self) -> None:
        self.network = Network("abc", BOARDS)
        self.network.run(5)

    @rule(seconds=st.sampled_from([0.1, 0.4, 1.0, 1.0, 3.4, 4.1]))
    def wait(self, seconds: float) -> None:
        self.network.now += seconds

    @rule(name=NAMES)
    def work(self, name: str) -> None:
        if name in self.network.servers:
            self.network.round(name)

    @rule(seconds=st.sampled_from([0.5, 1.0, 5.0]))
    def all_work(self, seconds: float) -> None:
        self.network.run(seconds)

    @rule(name=NAMES, most=st.sampled_from([1, 2, 100]))
    def read(self, name: str, most: int) -> None:
        if name in self.network.servers:
            self.network.servers[name].read(self.network.now, most)

    @rule(name=NAMES)
    def look(self, name: str) -> None:
        if name in self.network.servers:
            self.network.servers[name].look(self.network.now)

    @rule(name=NAMES, how=st.sampled_from(["answered", "answer lost", "late", "lost"]), which=st.integers(0, 9))
    def request(self, name: str, how: str, which: int) -> None:
        server = self.network.servers.get(name)
        if server is None or not server.requests:
            return
        request = server.requests[which % len(server.requests)]
        if how in ("answered", "answer lost"):
            self.network.arrive(request, answered=how == "answered")
        else:
            self.network.delay(request)
            if how == "lost":
                self.network.requests.remove(request)

    @rule(which=st.integers(0, 9))
    def late_request(self, which: int) -> None:
        if self.network.requests:
            self.network.arrive(self.network.requests[which % len(self.network.requests)])

    @rule(name=NAMES)
    def call(self, name: str) -> None:
        server = self.network.servers.get(name)
        if server is not None and server.calls:
            server.carry_out(server.calls.pop(0), self.network.now)

    @rule(name=NAMES)
    def write(self, name: str) -> None:
        if name in self.network.servers:
            for board in BOARDS:
                self.network.servers[name].write(board, self.network.now)

    @rule(name=NAMES)
    def kill(self, name: str) -> None:
        if name in self.network.servers:
            self.network.requests += self.network.servers[name].requests
            self.network.stop(name)

    @rule(name=NAMES)
    def restart(self, name: str) -> None:
        self.kill(name)
        self.network.start(name)

    @rule(name=NAMES)
    def connect(self, name: str) -> None:
        if name in self.network.servers:
            self.network.servers[name].connect()

    @rule(name=NAMES, board=st.sampled_from(BOARDS), fails=st.booleans())
    def break_board(self, name: str, board: str, fails: bool) -> None:
        if name in self.network.servers:
            (set.add if fails else set.discard)(self.network.servers[name].refusing, board)

    @rule(name=NAMES, board=st.sampled_from(BOARDS), works=st.booleans())
    def transfer(self, name: str, board: str, works: bool) -> None:
        (set.add if works else set.discard)(self.network.boards.working, (name, board))

    @rule(name=NAMES)
    def lose_bucket(self, name: str) -> None:
        if name == "c":
            self.network.bucket.lose()

    @invariant()
    def one_writer(self) -> None:
        for board in BOARDS:
            assert len(self.network.writers(board)) <= 1

    def teardown(self) -> None:
        """Without trouble, each device has the owner that it should have, after a while."""
        if not hasattr(self, "network"):
            return
        for name in "abc":
            if name not in self.network.servers:
                self.network.start(name)
            self.network.servers[name].refusing.clear()
        self.network.boards.working.clear()
        # Requests without an answer end after a second, and boards that failed are tried again after half a minute.
        for server in self.network.servers.values():
            while server.requests:
                self.network.delay(server.requests[0])
        self.network.run(90)
        assert whole(self.network)


TestCluster = Cluster.TestCase
TestCluster.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("which", ["a", "b"])
def test_a_server_may_be_started_again_at_once(which: str) -> None:
    network = Network("ab", BOARDS)
    network.run(6)
    server: Server = network.start(which)
    network.run(TTL - 0.5)
    assert not network.owned(which), "it cannot know that the last process is dead"
    network.run(4)
    assert whole(network) and server.membership.twin(server.clock + network.now) is None


def test_servers_that_start_together_do_not_take_each_others_devices() -> None:
    network = Network("abc", [f"board{number}" for number in range(20)])
    network.run(6)
    assert whole(network)
    for name in "abc":
        network.servers[name].claims.is_leaving = True
    network.run(1)
    for name in "abc":
        network.start(name)
    network.run(6)
    assert whole(network)
    firsts = {entry["first"] for key, (_, entry) in network.bucket.entries.items() if key.startswith("device.")}
    assert firsts == {RESERVED_NUMBERS}, "each was taken once"


def test_quick_answers_allow_more_up_to_a_bound() -> None:
    pace = Pace()
    assert pace.allowed == FIRST_PUTS
    for _ in range(4):
        pace.answered(1.0, 1.01)
    assert pace.allowed > FIRST_PUTS
    for _ in range(10 * MAX_PUTS):
        pace.answered(1.0, 1.01)
    assert pace.allowed == MAX_PUTS


def test_slow_answers_to_requests_of_the_same_time_halve_it_once() -> None:
    pace = Pace()
    for _ in range(10 * MAX_PUTS):
        pace.answered(1.0, 1.01)
    for _ in range(MAX_PUTS):
        pace.answered(2.0, 2.0 + SLOW_SECONDS)
    assert pace.allowed == MAX_PUTS // 2
    for number in range(20):
        pace.answered(10.0 + number, 11.0 + number)
    assert pace.allowed == 1
