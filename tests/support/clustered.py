"""Servers of one cluster in this process, with boards behind TCP sockets that they all reach.

with clustered(folder, ["board0", "board1"], ("alpha", "beta")) as cluster:
    owner = cluster.owner("board0")
    FastFlightClient(cluster.other_than(owner).location)    # answers for board0 as well
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastflight.app.config import ClusterSettings
from fastflight.app.local_cluster import NatsServers, nats_servers
from fastflight.app.running import RunningServer
from fastflight.client import FastFlightClient
from fastflight.cluster.placement import ranked
from tests.support.servers import serving
from tests.support.waiting import until

# Long enough that no lease ends because the computer is busy.
TTL = 3.0


@dataclass
class Cluster:
    nats: NatsServers
    urls: dict[str, str]
    servers: dict[str, RunningServer]

    def start(self, name: str, **settings: object) -> RunningServer:
        clustered = ClusterSettings(servers=self.nats.urls, name=name, ttl=TTL)
        server = serving(self.urls, **{"cluster": clustered, "http": ("127.0.0.1", 0), "shards": 1, **settings})
        self.servers[name] = server.__enter__()
        return self.servers[name]

    def close(self) -> None:
        for server in self.servers.values():
            server.close()

    def owner(self, device: str) -> str:
        """The owner of a device, on which all servers agree."""

        def agreed() -> set[str | None]:
            members = [server.member for server in self.servers.values()]
            found = {owners(member.status())[device] for member in members if member is not None}
            return found if len(found) == 1 and None not in found else set()

        return str(until(agreed).pop())

    def settle(self) -> None:
        """Wait until each device is where it should be, so that none moves."""
        until(lambda: all(self.owner(board) == ranked(board, [*self.servers])[0] for board in self.urls))

    def open_connections(self) -> None:
        """Have each server open all that it keeps open: its connections to the others, and its process for SQL."""
        for server in self.servers.values():
            with FastFlightClient(server.location) as client:
                for board in self.urls:
                    client.exec(board, "", interrupt=True).to_arrow()
                client.sql("select 1").to_arrow()

    def other_than(self, name: str) -> RunningServer:
        return next(server for each, server in self.servers.items() if each != name)


def owners(status: dict[str, object]) -> dict[str, str | None]:
    return {each["name"]: each["owner"] for each in status["devices"]}  # type: ignore[attr-defined]


@contextlib.contextmanager
def clustered(
    folder: Path, boards: Sequence[str], names: Sequence[str], url: str = "sim:?telemetry=20"
) -> Iterator[Cluster]:
    """Run servers of these `names` for `boards` at `url`. They have settled when the block begins.

    Without names none runs, and the caller starts them."""
    board = {"url": url, "bridge": {"socket": 0}}
    with contextlib.ExitStack() as stack:
        nats = stack.enter_context(nats_servers(folder))
        simulated = stack.enter_context(serving(dict.fromkeys(boards, board)))
        urls = {name: f"socket://127.0.0.1:{ports.socket}" for name, ports in simulated.bridges.items()}
        cluster = Cluster(nats, urls, {})
        for name in names:
            cluster.start(name)
        stack.callback(cluster.close)
        if names:
            cluster.settle()
        yield cluster
