"""A cluster on this computer, for the suite: NATS nodes, servers, and boards that only print.

The servers and the NATS nodes are processes of their own. The boards are light: `printing_boards` has thousands of them
in one process, each behind a TCP port; they print rows and execute nothing. All boards are recorded.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from fastflight.app.local_cluster import NatsServers, nats_servers
from fastflight.client import FastFlightClient
from fastflight.cluster.placement import rankings
from fastflight.errors import FastFlightError
from fastflight_benchmark.peers.running import FREE_PORT
from fastflight_benchmark.printing_boards import Fleet, Printed, printing
from fastflight_benchmark.printing_boards import Options as Boards
from fastflight_benchmark.processes import Spawned, cpu_seconds, spawned

# As few as bear the loss of one.
NATS_NODES = 3
# Each has two descriptors in their process, and many systems allow 20,000.
BOARDS_PER_PROCESS = 5_000
# Streams of a server: for its own viewers, and for other servers that pass the rows on to theirs.
MOST_STREAMS = 4_000
LOOK_SECONDS = 0.25
# For the status of ten thousand devices from a busy server.
STATUS_SECONDS = 30.0
ALONE = "alone"
# The stream of all recordings (`fastflight.cluster.recording_stream`).
RECORDINGS = "fastflight"


@dataclass(frozen=True, slots=True)
class Used:
    """What all parts have used until the time `at`: processor seconds, memory in bytes, and messages to NATS."""

    at: float
    # The times of all cores, of `psutil`.
    cores: Any
    servers_cpu: float
    servers_memory: int
    threads: int
    nats_cpu: float
    messages: int


def idle_percent(before: Any, after: Any) -> float:
    """Return the percentage of all cores that was idle between two `psutil.cpu_times()`."""
    spent = {name: getattr(after, name) - getattr(before, name) for name in before._fields}
    # The time of guests is already part of the time of users.
    total = sum(seconds for name, seconds in spent.items() if not name.startswith("guest"))
    return 100 * (spent["idle"] + spent.get("iowait", 0.0)) / total if total else 0.0


class Stage:
    """The boards `b0`, `b1` and so on, and servers that share them. Without NATS there is one server, `ALONE`."""

    def __init__(self, folder: Path, fleets: Sequence[Fleet], nats: NatsServers | None) -> None:
        self._folder = folder
        self._fleets = fleets
        self._nats = nats
        self._stack = contextlib.ExitStack()
        self.servers: dict[str, Spawned] = {}
        urls = [url for fleet in fleets for url in fleet.urls]
        self.boards = [f"b{number}" for number in range(len(urls))]
        devices = "".join(
            f'{name} = {{ url = "{url}", record = true }}\n' for name, url in zip(self.boards, urls, strict=True)
        )
        (folder / "fleet.toml").write_text(
            f"[limits]\nstreams = {MOST_STREAMS}\n[devices]\n{devices}", encoding="utf-8"
        )

    def add(self, *names: str) -> None:
        """Start servers, all at the same time, and return when they listen."""
        with ThreadPoolExecutor(len(names)) as pool:
            started = pool.map(lambda name: self._stack.enter_context(self._server(name)), names)
            self.servers.update(zip(names, started, strict=True))

    def kill(self, name: str) -> None:
        """Kill a server at once (SIGKILL)."""
        os.kill(self.servers.pop(name).pid, signal.SIGKILL)

    def close(self) -> None:
        """End all servers. They need not give up their devices: the cluster ends as well."""
        for name in [*self.servers]:
            self.kill(name)
        self._stack.close()

    def start_boards(self) -> None:
        """Let the boards print."""
        for fleet in self._fleets:
            fleet.start()

    def stop_boards(self) -> list[Printed]:
        """Let the boards stop. Return what each has printed."""
        return [printed for fleet in self._fleets for printed in fleet.stop()]

    def printed(self) -> list[Printed]:
        """Return what each board has printed so far."""
        return [printed for fleet in self._fleets for printed in fleet.count()]

    def location(self, number: int) -> str:
        """Return the address of a server; numbers go round."""
        return [*self.servers.values()][number % len(self.servers)].location

    def owners(self) -> dict[str, str]:
        """Return the owner of each device that has one, as the first server says that answers. Empty if none does."""
        if self._nats is None:
            return dict.fromkeys(self.boards, ALONE)
        for server in [*self.servers.values()]:
            try:
                with FastFlightClient(server.location, timeout=STATUS_SECONDS) as client:
                    devices = client.cluster()["devices"]
            except FastFlightError:
                continue
            return {str(each["name"]): str(each["owner"]) for each in devices if each["owner"] in self.servers}
        return {}

    def placed(self) -> dict[str, str]:
        """Return the owner that each device should have."""
        return {board: order[0] for board, order in rankings(self.boards, [*self.servers]).items()}

    def wait(self, right: Mapping[str, str] | None, seconds: float) -> tuple[float, int]:
        """Wait until all devices have an owner, or that in `right`, for at most `seconds`.

        Return the seconds that it took, and how many devices are still without it.
        """
        began = time.perf_counter()
        while True:
            owners = self.owners()
            missing = sum(
                (owner := owners.get(board)) is None or (right is not None and owner != right[board])
                for board in self.boards
            )
            passed = time.perf_counter() - began
            if not missing or passed > seconds:
                return passed, missing
            time.sleep(LOOK_SECONDS)

    def used(self) -> Used:
        """Return what all parts have used so far."""
        servers = [psutil.Process(server.pid) for server in self.servers.values()]
        nodes = [] if self._nats is None else self._nats.nodes
        nats = [psutil.Process(node.process.pid) for node in nodes if node.process is not None]
        return Used(
            time.perf_counter(),
            psutil.cpu_times(),
            sum(map(cpu_seconds, servers)),
            sum(each.memory_info().rss for each in servers),
            sum(each.num_threads() for each in servers),
            sum(map(cpu_seconds, nats)),
            sum(node.monitored("varz")["in_msgs"] for node in nodes),
        )

    def recorded_messages(self) -> int:
        """Return how many messages the stream of recordings has had so far, as the node says that is ahead."""
        last = 0
        for node in [] if self._nats is None else self._nats.nodes:
            for account in node.monitored("jsz?accounts=true&streams=true").get("account_details") or ():
                for stream in account.get("stream_detail") or ():
                    if stream["name"] == RECORDINGS:
                        last = max(last, int(stream["state"]["last_seq"]))
        return last

    def _server(self, name: str) -> contextlib.AbstractContextManager[Spawned]:
        cluster = [] if self._nats is None else ["--cluster", self._nats.url, "--cluster-name", name]
        return spawned(
            "fastflight",
            "serve",
            *("--server", FREE_PORT, "--fleet", str(self._folder / "fleet.toml")),
            *("--recordings", str(self._folder / f"{name}-recordings")),
            *cluster,
        )


@contextlib.contextmanager
def stage(boards: int, rows_per_second: float, servers: int) -> Iterator[Stage]:
    """Start NATS and the boards, which wait, but no server; `servers` 0 is for one server without a cluster."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fastflight-scale-")))
        nats = stack.enter_context(nats_servers(folder, NATS_NODES)) if servers else None
        fleets = [
            stack.enter_context(
                printing(Boards(min(BOARDS_PER_PROCESS, boards - first), rows_per_second, waiting=True))
            )
            for first in range(0, boards, BOARDS_PER_PROCESS)
        ]
        running = Stage(folder, fleets, nats)
        stack.callback(running.close)
        yield running
