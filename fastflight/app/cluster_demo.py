"""A whole cluster on this computer, to try it out: NATS servers, fastflight servers and simulated boards.

Everything is a process of its own, in a temporary folder, at free ports of loopback. The boards are behind TCP sockets
and outlive the servers, as boards on a network do. All processes end with the block.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastflight.app.nats_servers import HOST, free_ports, nats_servers
from fastflight.client import FastFlightClient
from fastflight.cluster.placement import ranked
from fastflight.errors import FastFlightError, TransportTimeout

SERVERS = ("alpha", "beta", "gamma")
# Lines that a board prints in a second.
TELEMETRY = 2
# For 36 processes that start at the same time on a small computer.
START_SECONDS = 120.0
# How long a process may take to end before it is killed.
END_SECONDS = 15.0
LOOK_SECONDS = 0.1


@dataclass
class DemoServer:
    """One fastflight server. `process` may be killed."""

    name: str
    process: subprocess.Popen[bytes]
    location: str
    http: str


class DemoCluster:
    """The servers, which use NATS at the addresses `nats`, and the boards. `folder` has the fleet file and the logs."""

    def __init__(self, folder: Path, nats: str) -> None:
        self.folder = folder
        self._nats = nats
        self.fleet = folder / "fleet.toml"
        self.servers: dict[str, DemoServer] = {}
        self.boards: list[str] = []
        # The boards, and all servers that were started.
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, boards: int) -> None:
        """Start everything, and wait until each board has an owner."""
        addresses = dict(zip((f"board{n:02}" for n in range(1, boards + 1)), free_ports(boards), strict=True))
        for name, port in addresses.items():
            self._start_board(name, port)
        self.boards = list(addresses)
        entries = [f'[devices.{name}]\nurl = "socket://{HOST}:{port}"\n' for name, port in addresses.items()]
        self.fleet.write_text("\n".join(entries))
        for name in SERVERS:
            self.start_server(name)
        self.wait_settled()

    def start_server(self, name: str) -> None:
        """Start a server, or start it again."""
        grpc, http = free_ports(2)
        server = DemoServer(
            name,
            self._run(
                name,
                [sys.executable, "-m", "fastflight", "serve", "--server", f"grpc://{HOST}:{grpc}", "--http", str(http)]
                + ["--fleet", str(self.fleet), "--cluster", self._nats, "--cluster-name", name]
                + ["--recordings", str(self.folder / f"{name}-recordings")],
            ),
            f"grpc://{HOST}:{grpc}",
            f"http://{HOST}:{http}",
        )
        self.servers[name] = server
        self._wait(lambda: self.status(server) is not None, f"the server {name}", server)

    def status(self, server: DemoServer) -> dict[str, Any] | None:
        """Return what a server knows of the cluster; None if it does not answer."""
        try:
            with FastFlightClient(server.location, timeout=2.0) as client:
                return client.cluster()
        except FastFlightError:
            return None

    def wait_settled(self) -> None:
        """Wait until all servers that run are members, and each board is owned by the one that should own it."""
        running = [server for server in self.servers.values() if server.process.poll() is None]

        def settled() -> bool:
            seen = self.status(running[0])
            if seen is None or seen["trouble"]:
                return False
            owners = {each["name"]: each["owner"] for each in seen["devices"]}
            names = [server.name for server in running]
            joined = {each["name"] for each in seen["servers"]} == {*names}
            return joined and all(owners.get(board) == ranked(board, names)[0] for board in self.boards)

        self._wait(settled, "the cluster", running[0])

    def close(self) -> None:
        """End everything: the servers first, so that they release their boards."""
        servers = [server.process for server in self.servers.values()]
        for processes in (servers, self._processes):
            for process in processes:
                if process.poll() is None:
                    process.terminate()
            deadline = time.monotonic() + END_SECONDS
            for process in processes:
                try:
                    process.wait(max(0.0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
                if process.stdin is not None:
                    process.stdin.close()

    def _start_board(self, name: str, port: int) -> None:
        files = self.folder / name
        files.mkdir()
        command = [sys.executable, "-m", "fastflight.simulator", "--listen", f"{HOST}:{port}", "--control"]
        self._run(name, [*command, "--files", str(files), "--telemetry", str(TELEMETRY)])

    def _run(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(  # noqa: S603  # our own programs, no shell
                # A Ctrl-C in the terminal must reach only this process, which then ends the others in their order. The
                # boards end when their standard input does.
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def _wait(self, condition: Callable[[], bool], what: str, server: DemoServer) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not condition():
            if server.process.poll() is not None or time.monotonic() > deadline:
                # The folder of the logs goes with the demo.
                said = (self.folder / f"{server.name}.log").read_text(errors="replace").strip().splitlines()
                raise TransportTimeout(f"{what} did not start", hint=f"It said: {said[-1]}" if said else "")
            time.sleep(LOOK_SECONDS)


@contextlib.contextmanager
def demo_cluster(boards: int) -> Iterator[DemoCluster]:
    """Run a cluster with this many boards. `RequestError` if the NATS server is not installed."""
    with (
        tempfile.TemporaryDirectory(prefix="fastflight-cluster-") as folder,
        nats_servers(Path(folder), len(SERVERS)) as nats,
    ):
        cluster = DemoCluster(Path(folder), nats.url)
        try:
            cluster.start(boards)
            yield cluster
        finally:
            cluster.close()
