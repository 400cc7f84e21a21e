"""The stage of the campaign `cluster`: three NATS nodes, three servers, and boards that all servers reach.

    boards  ====  alpha, beta, gamma  ====  n0, n1, n2

A chaos proxy stands between each server and each NATS node, between any two NATS nodes, and in front of each server.
`links` has them by name: `alpha-n0`, `n0-n1`, `to-alpha`. The last is on the way of the other servers and of clients.
The files of each NATS node, and the recordings of each server, are on a small disk of their own, where the system
allows that. The clock of each server can be set. Servers compact often.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fastflight.app.local_cluster import NatsNode, free_ports
from fastflight.client import FastFlightClient
from fastflight.errors import FastFlightError
from tests.campaigns.clustering import compacting
from tests.campaigns.clustering.boards import CountingBoard
from tests.campaigns.faulting.program import Program
from tests.support.chaos import ChaosProxy
from tests.support.clock import SettableClock
from tests.support.printing_board import HOST
from tests.support.small_disk import SmallDisk
from tests.support.targets import TargetMissing
from tests.support.waiting import until

SERVERS = ("alpha", "beta", "gamma")
NODES = ("n0", "n1", "n2")
LINKS = (
    *(f"to-{name}" for name in SERVERS),
    *(f"{name}-{node}" for name in SERVERS for node in NODES),
    *(f"{one}-{other}" for one, other in itertools.combinations(NODES, 2)),
)
DISK_BYTES = 256 * 1024 * 1024
CALL_SECONDS = 30.0
# A cluster that is whole again after a fault has an owner for each device within this time, on a busy computer.
SETTLE_SECONDS = 90.0
# Routes go through the proxies only: what nodes tell each other of their addresses leads nowhere.
ROUTES = 'cluster {{ name: test, listen: "{host}:{port}", advertise: "{host}:1", routes: [{routes}] }}'
FLEET = """
[recordings]
sync_ms = 20
max_bytes = "1GB"
"""


class Server:
    """A server of the cluster, which can be started again at the same address."""

    def __init__(self, name: str, program: Program, proxy: ChaosProxy, clock: SettableClock, log: Path) -> None:
        self.name, self.program, self.proxy, self.clock, self.log = name, program, proxy, clock, log
        self.location = f"grpc://{HOST}:{proxy.port}"

    def client(self) -> FastFlightClient:
        return FastFlightClient(self.location, timeout=CALL_SECONDS)

    def status(self) -> dict[str, Any]:
        """What this server knows of the cluster; empty if it does not answer."""
        with contextlib.suppress(FastFlightError), FastFlightClient(self.location, timeout=5) as client:
            return dict(client._connection.act_once("cluster.status"))
        return {}


class ClusterStage:
    """All of it, while the context lasts."""

    def __init__(self, folder: Path, boards: int) -> None:
        self._folder = folder
        self._stack = contextlib.ExitStack()
        self.boards = {f"board{number}": CountingBoard() for number in range(boards)}
        self.servers: dict[str, Server] = {}
        self.nodes: dict[str, NatsNode] = {}
        self.disks: dict[str, SmallDisk] = {}
        # Each with the proxies that carry it.
        self.links: dict[str, list[ChaosProxy]] = {}
        self._ports = free_ports(3 * len(NODES) + len(SERVERS))
        # Why there are no small disks.
        self.missing = ""

    def __enter__(self) -> Self:
        with self._stack:
            for board in self.boards.values():
                self._stack.enter_context(board)
            self._start_nats()
            self._start_servers()
            self.settle()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def settle(self) -> None:
        """Wait until all servers agree that each board has an owner. `AssertionError` if they do not."""

        def settled() -> bool:
            found = [server.status() for server in self.servers.values()]
            owners = [{each["name"]: each["owner"] for each in status.get("devices", ())} for status in found]
            complete = owners[0].keys() == self.boards.keys() and None not in owners[0].values()
            return complete and all(each == owners[0] for each in owners) and not any(s["trouble"] for s in found)

        until(settled, SETTLE_SECONDS)

    def _start_nats(self) -> None:
        free = iter(self._ports)
        ports = {name: (next(free), next(free), next(free)) for name in NODES}
        routes: dict[str, list[int]] = {name: [] for name in NODES}
        for one, other in itertools.combinations(NODES, 2):
            self.links[f"{one}-{other}"] = [self._proxy(ports[other][2]), self._proxy(ports[one][2])]
            for name, proxy in zip((one, other), self.links[f"{one}-{other}"], strict=True):
                routes[name].append(proxy.port)
        for name, (client, monitor, route) in ports.items():
            self._add_disk(name, self._folder / name)
            listed = ", ".join(f'"nats://{HOST}:{port}"' for port in routes[name])
            settings = ROUTES.format(host=HOST, port=route, routes=listed)
            self.nodes[name] = NatsNode(name, self._folder, (client, monitor, route), [], settings)
            self._stack.callback(self.nodes[name].kill)
            self.nodes[name].start()
        until(lambda: all(node.is_healthy() for node in self.nodes.values()))

    def _start_servers(self) -> None:
        fleet = self._folder / "fleet.toml"
        devices = [f'[devices.{name}]\nurl = "socket://{HOST}:{board.port}"\n' for name, board in self.boards.items()]
        fleet.write_text(FLEET + "record = true\n".join([*devices, ""]))
        for name, port in zip(SERVERS, self._ports[-len(SERVERS) :], strict=True):
            proxy = self._proxy(port)
            self.links[f"to-{name}"] = [proxy]
            to_nats = []
            for node in NODES:
                link = self._proxy(int(self.nodes[node].url.rpartition(":")[2]))
                self.links[f"{name}-{node}"] = [link]
                to_nats.append(f"nats://{HOST}:{link.port}")
            (self._folder / f"of-{name}").mkdir()
            self._add_disk(name, self._folder / f"of-{name}" / "kept")
            clock = self._stack.enter_context(SettableClock(self._folder / f"of-{name}"))
            options = {
                "--server": f"grpc://{HOST}:{port}",
                "--fleet": str(fleet),
                "--recordings": str(self._folder / f"of-{name}" / "kept"),
                "--cluster": ",".join(to_nats),
                "--cluster-name": name,
                "--cluster-location": f"grpc://{HOST}:{proxy.port}",
                "--drain": "2",
            }
            arguments = ["serve", *itertools.chain(*options.items())]
            log = self._folder / f"{name}.log"
            environment = {**os.environ, **clock.environment, compacting.VARIABLE: "yes"}
            program = Program(name, arguments, [r"listening on (\S+);"], log, environment)
            self.servers[name] = Server(name, program, proxy, clock, log)
        with ThreadPoolExecutor(len(SERVERS)) as starting:
            list(starting.map(lambda server: server.program.start(), self.servers.values()))
        for server in self.servers.values():
            self._stack.callback(server.program.kill)

    def _add_disk(self, name: str, folder: Path) -> None:
        if not self.missing:
            try:
                self.disks[name] = self._stack.enter_context(SmallDisk(folder, DISK_BYTES))
            except TargetMissing as error:
                self.missing = str(error)

    def _proxy(self, port: int) -> ChaosProxy:
        return self._stack.enter_context(ChaosProxy(HOST, port))
