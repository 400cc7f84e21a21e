"""Starts the servers of a run, each in a process of its own, and measures their processor time."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from fastflight import Mock
from fastflight.client import FastFlightClient
from fastflight.errors import DataError, TransportError
from fastflight.sources import pacer
from fastflight_benchmark.contenders import AIO, BARE, MODES, NAMESAKES, PARSING
from fastflight_benchmark.cores import cpu_seconds
from fastflight_benchmark.peers import environment
from fastflight_benchmark.peers.environment import Missing, Say
from fastflight_benchmark.spawned import Spawned, spawned, spawned_by

SERVER = "fastflight_benchmark.start_flight_server"
FREE_PORT = "grpc://127.0.0.1:0"
NAMESAKE_SCRIPT = Path(__file__).with_name("namesake.py")


class Served:
    """A server that answers at `location`. `pid` is None if it was not started here."""

    def __init__(self, location: str, pid: int | None = None) -> None:
        self.location = location
        self.pid = pid
        own = [] if pid is None else [psutil.Process(pid)]
        self._processes = own + [child for process in own for child in process.children(recursive=True)]

    def cpu_seconds(self) -> float:
        """Return the processor time so far of its process and its children; NaN if its process is unknown."""
        return sum(map(cpu_seconds, self._processes)) if self._processes else float("nan")


@dataclass(frozen=True, slots=True)
class Servers:
    """How to start each server of a run. `modules` has module and options of each peer that this package contains."""

    modules: Mapping[str, Sequence[str]]
    # The interpreter of the environment that has PyPI's fastflight.
    namesake: Path | None = None
    missing: Mapping[str, str] = field(default_factory=dict)

    @contextlib.contextmanager
    def running(self, named: str | None) -> Iterator[dict[str, Served]]:
        """Start all servers and yield them by the names of contenders.

        `named` is the URL of a fastflight server that already runs; without it, one is started.
        """
        with contextlib.ExitStack() as stack:
            own = Served(named) if named else _served(stack.enter_context(spawned(SERVER, "--server", FREE_PORT)))
            found: dict[str, Served] = dict.fromkeys(MODES, own)
            for name, (module, *options) in self.modules.items():
                found[name] = _served(stack.enter_context(spawned(module, "--server", FREE_PORT, *options)))
            if self.namesake is not None:
                command = [str(self.namesake), "-I", str(NAMESAKE_SCRIPT), "--pacer", str(pacer.__file__)]
                peer = _served(stack.enter_context(spawned_by(command, NAMESAKE_SCRIPT.name)))
                found |= dict.fromkeys(NAMESAKES, peer)
            yield found

    def described(self) -> dict[str, Any]:
        """Return what the JSON file of the result says about the peers."""
        versions = {} if self.namesake is None else {"fastflight": environment.installed(self.namesake, "fastflight")}
        return {"peers": [*self.modules, *(NAMESAKES if self.namesake else ())], "missing": dict(self.missing)} | (
            {"peer_versions": versions} if versions else {}
        )


def prepared(wanted: Set[str], modules: Mapping[str, Sequence[str]], say: Say) -> Servers:
    """Prepare the `wanted` peers. `say` gets the name of each missing peer, with the reason."""
    missing: dict[str, str] = {}
    python = None
    if wanted & set(NAMESAKES):
        try:
            python = environment.namesake(say)
        except Missing as error:
            missing = dict.fromkeys(NAMESAKES, str(error))
    if AIO in wanted:
        try:
            import grpc  # type: ignore[import-untyped]  # noqa: F401
        except ImportError:
            missing[AIO] = "grpcio is not installed: it is in the extra `benchmark`"
    for name, reason in missing.items():
        say(f"missing peer {name}: {reason}")
    available = {name: how for name, how in modules.items() if name in wanted and name not in missing}
    return Servers(available, python, missing)


def named_server(location: str, say: Say) -> str | None:
    """Return `location` if a fastflight server with the mock table answers at it, otherwise None.

    The suite measures that server and leaves it running. Any other answer is an error.
    """
    try:
        with FastFlightClient(location) as client:
            client.read_request(Mock(total_rows=1)).to_arrow()
    except TransportError:
        say(f"no server answers at {location}: starting one for each run")
        return None
    say(f"using the server that answers at {location}; it is left running")
    return location


def _served(spawned: Spawned) -> Served:
    return Served(spawned.location, spawned.pid)


TABLE_MODULES: Mapping[str, Sequence[str]] = {
    BARE: ("fastflight_benchmark.table",),
    AIO: ("fastflight_benchmark.peers.aio",),
}
CONSTANT_MODULES: Mapping[str, Sequence[str]] = {
    BARE: ("fastflight_benchmark.peers.constant",),
    PARSING: ("fastflight_benchmark.peers.constant", "--parse"),
    AIO: ("fastflight_benchmark.peers.aio", "--constant"),
}


def add_token(file: Path, name: str, scope: str) -> str:
    """Add a token to the token file of a server, which is made if there is none. Return the token."""
    command = [sys.executable, "-m", "fastflight", "token", "add", name, "--scope", scope, "--file", str(file)]
    added = subprocess.run(command, capture_output=True, text=True, check=False)
    if added.returncode:
        raise DataError(f"no token was made: {added.stderr.strip()}")
    return added.stdout.strip()
