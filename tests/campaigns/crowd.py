"""Many devices on several servers: how long until each has the owner that it should have.

    python -m tests.campaigns.crowd --devices 10000 --servers 4

Each server is a process with its leases and nothing else: its devices are fakes, whose use takes no time. Reported are
the seconds of a start of all servers but one, of the join of that one, and of a death (SIGKILL), and how many devices
got another owner. Exit code 1: a device had two owners or none, moved without need, or a server lost its lease.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path

from fastflight.app.nats_servers import nats_servers
from fastflight.cluster.connection import ClusterConnection, NatsAddress
from fastflight.cluster.lease import TTL_SECONDS
from fastflight.cluster.ownership import Ownership
from fastflight.cluster.placement import rankings
from fastflight.cluster.profile import Profile

LOOK_SECONDS = 0.1
# No event takes longer, or something is wrong.
MOST_SECONDS = 600.0


class FakeDevices:
    """Devices whose use takes no time, and that are always idle."""

    def __init__(self) -> None:
        self.used: set[str] = set()
        self.takes = 0

    def take(self, device: str, first_seq: int, guard: Callable[[], None]) -> None:
        guard()
        self.used.add(device)
        self.takes += 1

    def give(self, device: str) -> None:
        self.used.discard(device)

    def is_idle(self, device: str) -> bool:
        return True

    def next_seq(self, device: str) -> int:
        return 0


async def _serve(urls: tuple[str, ...], profile: Profile, ttl: float, pipe: Connection) -> None:
    """Own devices, and answer each message with those in use, how many were taken, and how often the lease began."""
    devices = FakeDevices()
    connection = ClusterConnection(NatsAddress(urls), profile.name)
    connection.open()
    ownership = Ownership(connection, profile, devices, servers=len(urls), ttl=ttl)
    running = asyncio.ensure_future(ownership.run())
    terms: dict[int, None] = {}
    while not running.done():
        if (lease := ownership.directory.server(profile.name)) is not None and lease.term:
            terms[lease.term] = None
        if pipe.poll():
            pipe.recv()
            pipe.send((set(devices.used), devices.takes, len(terms)))
        await asyncio.sleep(0.02)
    running.result()


def serve(urls: tuple[str, ...], name: str, devices: int, ttl: float, pipe: Connection) -> None:
    """Run a server until its process is killed, or the one that started it has ended."""
    profile = Profile(name, name, f"grpc://{name}:1", devices=dict.fromkeys(names_of(devices), "settings"))
    with contextlib.suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        asyncio.run(_serve(urls, profile, ttl, pipe))


def names_of(devices: int) -> list[str]:
    return [f"device{number}" for number in range(devices)]


@dataclass(frozen=True, slots=True)
class Event:
    """What happened, seconds until each device had its owner, and how many were taken for that."""

    what: str
    owned: float
    settled: float
    takes: int


@dataclass
class Crowd:
    """The servers that run, by name, over NATS servers at `urls`."""

    urls: tuple[str, ...]
    devices: int
    ttl: float = TTL_SECONDS
    servers: dict[str, tuple[SpawnProcess, Connection]] = field(default_factory=dict)
    # The owner that each device should have, and has once the servers have settled.
    owners: dict[str, str] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    flaws: list[str] = field(default_factory=list)

    def start(self, *names: str) -> None:
        """Start servers, and wait until the devices are theirs."""
        context = multiprocessing.get_context("spawn")
        before = self._takes()
        for name in names:
            mine, theirs = context.Pipe()
            process = context.Process(target=serve, args=(self.urls, name, self.devices, self.ttl, theirs), daemon=True)
            process.start()
            theirs.close()
            self.servers[name] = process, mine
        for name in names:
            self._ask(name)  # it has started
        self._wait(f"{', '.join(names)} started", before)

    def kill(self, name: str) -> None:
        """Kill a server, and wait until the others have its devices."""
        before = self._takes() - self._ask(name)[1]
        self._end(name)
        self._wait(f"{name} was killed", before)

    def close(self) -> None:
        for name in [*self.servers]:
            self._end(name)

    def _end(self, name: str) -> None:
        process, pipe = self.servers.pop(name)
        process.kill()
        process.join()
        process.close()
        pipe.close()

    def _ask(self, name: str) -> tuple[set[str], int, int]:
        pipe = self.servers[name][1]
        pipe.send("")
        found: tuple[set[str], int, int] = pipe.recv()
        return found

    def _takes(self) -> int:
        return sum(self._ask(name)[1] for name in self.servers)

    def _wait(self, what: str, takes: int) -> None:
        """Wait until each device has the owner that it should have."""
        began = time.monotonic()
        names = names_of(self.devices)
        owners = {device: order[0] for device, order in rankings(names, self.servers).items()}
        wanted: dict[str, set[str]] = {name: set() for name in self.servers}
        for device, owner in owners.items():
            wanted[owner].add(device)
        owned_after = float("inf")
        while True:
            found = {name: self._ask(name) for name in self.servers}
            seconds = time.monotonic() - began
            used = [device for devices, _, _ in found.values() for device in devices]
            if len(used) != len(set(used)):
                # Of two moments: a device may have moved between them.
                again = [device for name in self.servers for device in self._ask(name)[0]]
                if len(again) != len(set(again)):
                    self.flaws.append(f"{what}: a device has two owners")
            if len(set(used)) == self.devices:
                owned_after = min(owned_after, seconds)
            if {name: devices for name, (devices, _, _) in found.items()} == wanted:
                break
            if seconds > MOST_SECONDS:
                self.flaws.append(f"{what}: {len(set(used))} devices have an owner after {seconds:.0f} s")
                break
            time.sleep(LOOK_SECONDS)
        self.flaws += [f"{what}: {name} lost its lease" for name, (_, _, terms) in found.items() if terms != 1]
        self.events.append(Event(what, owned_after, seconds, self._takes() - takes))
        # Servers that start together may each see the others late.
        moved = sum(owners[each] != self.owners.get(each) for each in names)
        if self.owners and self.events[-1].takes > moved:
            self.flaws.append(f"{what}: {self.events[-1].takes} devices were taken, and {moved} had to be")
        self.owners = owners


@contextlib.contextmanager
def crowd(devices: int, nodes: int, ttl: float = TTL_SECONDS) -> Iterator[Crowd]:
    """Run NATS servers, and the servers that the block starts, until it ends."""
    with tempfile.TemporaryDirectory(prefix="fastflight-crowd-") as folder:
        with nats_servers(Path(folder), nodes=nodes) as nats:
            running = Crowd(nats.urls, devices, ttl)
            try:
                yield running
            finally:
                running.close()


def campaign(running: Crowd, servers: int) -> None:
    """Start all servers but one, then that one, and kill the first."""
    names = [f"s{number}" for number in range(servers)]
    running.start(*names[:-1])
    running.start(names[-1])
    running.kill(names[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--devices", type=int, default=10_000)
    parser.add_argument("--servers", type=int, default=4)
    parser.add_argument("--nodes", type=int, default=3, help="NATS servers")
    chosen = parser.parse_args()
    if chosen.servers < 2:
        parser.error("needs --servers of at least 2")
    with crowd(chosen.devices, chosen.nodes) as running:
        campaign(running, chosen.servers)
    for event in running.events:
        print(
            f"{event.what}: each device has an owner after {event.owned:.1f} s, and the right one after "
            f"{event.settled:.1f} s; {event.takes} were taken"
        )
    for flaw in running.flaws:
        print(f"flaw: {flaw}")
    sys.exit(bool(running.flaws))


if __name__ == "__main__":
    main()
