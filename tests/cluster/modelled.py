"""Servers of a cluster without I/O: their state machines, over a bucket and a network that a test plays.

The test decides when a request arrives, and whether its sender still waits for the answer. The bucket keeps the last
content of each entry only, so a server that reads late does not see what came between. Each server has a clock of its
own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fastflight.cluster.claims import PARTS, Begin, Claims, End
from fastflight.cluster.directory import Directory
from fastflight.cluster.entries import Put
from fastflight.cluster.membership import Membership
from fastflight.cluster.profile import Profile

TTL = 4.0


class Bucket:
    """The bucket. `number` changes when NATS loses it."""

    def __init__(self) -> None:
        self.number, self.revision = 1, 0
        self.entries: dict[str, tuple[int, Mapping[str, Any]]] = {}

    def put(self, put: Put) -> int | None:
        """Return the new revision, or None if the request is refused."""
        if put.last is not None and put.last != self.entries.get(put.key, (0, {}))[0]:
            return None
        self.revision += 1
        self.entries[put.key] = self.revision, put.content
        return self.revision

    def lose(self) -> None:
        self.number, self.revision, self.entries = self.number + 1, 0, {}


@dataclass(eq=False)
class Request:
    """A request on its way. `sender` hears of the result only while it waits for it."""

    put: Put
    sender: Server
    bucket: int
    is_own: bool
    waits: bool = True


class Boards:
    """What the boards have met: the largest number of traffic, and servers that are in the middle of a transfer."""

    def __init__(self) -> None:
        self.used: dict[str, int] = {}
        self.working: set[tuple[str, str]] = set()


@dataclass(eq=False)
class Server:
    """One process of a server."""

    name: str
    clock: float
    bucket: Bucket
    boards: Boards
    devices: Mapping[str, str]
    boot: str = ""
    local: frozenset[str] = frozenset()
    requests: list[Request] = field(default_factory=list)
    calls: list[Begin | End] = field(default_factory=list)
    next: dict[str, int] = field(default_factory=dict)
    refusing: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.directory = Directory(TTL)
        profile = Profile(self.name, self.boot, devices=self.devices, local=self.local)
        self.membership = Membership(profile, self.directory, TTL)
        self.claims = Claims(self.membership, self.directory, self, TTL)
        self.connect()

    def is_idle(self, device: str) -> bool:
        return (self.name, device) not in self.boards.working

    def next_seq(self, device: str) -> int:
        return self.next[device]

    def connect(self) -> None:
        """Connect to NATS, and begin to read the bucket."""
        self.number, self.cursor, self.is_loaded = self.bucket.number, 0, False
        self.directory.begin(self.number)

    def read(self, now: float, most: int = 1_000) -> None:
        """See what is new in the bucket."""
        if self.number != self.bucket.number:
            return
        for _ in range(most):
            new = [(seen[0], key, seen[1]) for key, seen in self.bucket.entries.items() if seen[0] > self.cursor]
            if not new:
                if not self.is_loaded:
                    self.directory.loaded(self.clock + now)
                    self.is_loaded = True
                return
            self.cursor, key, content = min(new, key=lambda each: each[0])
            self.membership.saw(key, self.cursor, content, self.clock + now)

    def look(self, now: float) -> None:
        """Take the next steps: new requests and calls."""
        at = self.clock + now
        self.requests += [Request(put, self, self.number, True) for put in self.membership.look(at)]
        for _ in range(PARTS):
            self.claims.look_around()
        for step in self.claims.look(at):
            if isinstance(step, Put):
                self.requests.append(Request(step, self, self.number, False))
            else:
                self.calls.append(step)

    def answer(self, request: Request, revision: int | None, now: float, *, lost: bool = False) -> None:
        """Hear of the result of a request; `lost`: that there was no answer in time."""
        if not request.waits:
            return
        request.waits = False
        stored = revision is not None and not lost
        if stored:
            assert revision is not None
            self.membership.stored(request.put, revision, self.clock + now)
        elif lost:
            self.membership.unanswered(request.put)
        else:
            self.membership.refused(request.put)
        if not request.is_own:
            self.claims.put_ended(request.put.content["device"], self.clock + now, stored=stored)

    def carry_out(self, call: Begin | End, now: float) -> None:
        """End the call of a device's `take` or `give`."""
        if isinstance(call, End):
            self.claims.ended(call.device, self.clock + now)
        elif call.device in self.refusing:
            self.claims.failed(call.device, self.clock + now)
        else:
            is_first = self.bucket.number == 1  # with the bucket, the numbers are lost
            assert not is_first or call.first_seq >= self.boards.used.get(call.device, 0), "numbers are used twice"
            self.next[call.device] = call.first_seq
            self.claims.begun(call.device)

    def may_write(self, device: str, now: float) -> bool:
        return self.claims.may_write(device, self.clock + now)

    def uses(self, device: str, now: float) -> bool:
        claim = self.claims.claim(device)
        return claim is not None and claim.in_use and self.may_write(device, now)

    def write(self, device: str, now: float) -> None:
        """Write to a board, and have traffic."""
        if self.uses(device, now):
            self.next[device] += 1
            self.boards.used[device] = max(self.boards.used.get(device, 0), self.next[device])


class Network:
    """All servers, and the requests on their way."""

    def __init__(self, names: str, devices: list[str], local: Mapping[str, frozenset[str]] | None = None) -> None:
        self.now, self.boots = 0.0, 0
        self.bucket, self.boards = Bucket(), Boards()
        self.devices = dict.fromkeys(devices, "settings")
        self.local = local or {}
        self.requests: list[Request] = []
        self.servers: dict[str, Server] = {}
        for name in names:
            self.start(name)

    def start(self, name: str) -> Server:
        """Start a process of a server. One of the same name that runs is killed; its requests may still arrive."""
        if name in self.servers:
            self.stop(name)
        self.boots += 1
        boot = f"{name}{self.boots}"
        # Clocks of computers begin anywhere.
        clock = 1000.0 * self.boots
        local = self.local.get(name, frozenset())
        server = Server(name, clock, self.bucket, self.boards, self.devices, boot, local)
        self.servers[name] = server
        return server

    def stop(self, name: str) -> None:
        killed = self.servers.pop(name)
        for request in killed.requests:
            request.waits = False

    def arrive(self, request: Request, *, answered: bool = True) -> None:
        """Let a request arrive at the bucket, and its answer at the server unless that is lost."""
        request.sender.requests = [each for each in request.sender.requests if each is not request]
        self.requests = [each for each in self.requests if each is not request]
        is_there = request.bucket == self.bucket.number
        revision = self.bucket.put(request.put) if is_there else None
        if not (answered and is_there):
            request.sender.answer(request, None, self.now, lost=True)
        else:
            request.sender.answer(request, revision, self.now)

    def delay(self, request: Request) -> None:
        """The sender waits no longer, but the request may still arrive."""
        request.sender.requests = [each for each in request.sender.requests if each is not request]
        request.sender.answer(request, None, self.now, lost=True)
        self.requests.append(request)

    def round(self, *names: str) -> None:
        """Let servers work without trouble: they read, look, and get all answers."""
        for name in names or tuple(self.servers):
            server = self.servers[name]
            if server.number != self.bucket.number:
                server.connect()
            server.read(self.now)
            server.look(self.now)
            while server.requests:
                self.arrive(server.requests[0])
            while server.calls:
                server.carry_out(server.calls.pop(0), self.now)

    def run(self, seconds: float, *names: str) -> None:
        """Let time pass, without trouble."""
        for _ in range(int(seconds / 0.25)):
            self.now += 0.25
            self.round(*names)

    def writers(self, device: str) -> list[str]:
        return [name for name, server in self.servers.items() if server.may_write(device, self.now)]

    def owned(self, name: str) -> set[str]:
        server = self.servers[name]
        return {device for device in self.devices if server.uses(device, self.now)}
