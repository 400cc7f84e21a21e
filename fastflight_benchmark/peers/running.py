"""Starts the servers of a run, each in a process of its own, and measures their processor time."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from fastflight import Mock
from fastflight.client import FastFlightClient
from fastflight.errors import DataError, TransportError
from fastflight.sources import pacer
from fastflight_benchmark.contenders import BARE, MODES, NAMESAKES
from fastflight_benchmark.cores import cpu_seconds
from fastflight_benchmark.peers import environment
from fastflight_benchmark.peers.environment import Missing, Say
from fastflight_benchmark.spawned import Spawned, spawned, spawned_by

SERVER = "fastflight_benchmark.start_flight_server"
TABLE = "fastflight_benchmark.table"
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
    """The wanted servers. `namesake` is the interpreter of the environment that has PyPI's fastflight."""

    wanted: Set[str]
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
            if BARE in self.wanted:
                found[BARE] = _served(stack.enter_context(spawned(TABLE, "--server", FREE_PORT)))
            if self.namesake is not None:
                command = [str(self.namesake), "-I", str(NAMESAKE_SCRIPT), "--pacer", str(pacer.__file__)]
                peer = _served(stack.enter_context(spawned_by(command, NAMESAKE_SCRIPT.name)))
                found |= dict.fromkeys(NAMESAKES, peer)
            yield found


def prepared(wanted: Set[str], say: Say) -> Servers:
    """Prepare the `wanted` peers. `say` gets the name of each missing peer, with the reason."""
    if not wanted & set(NAMESAKES):
        return Servers(wanted)
    try:
        return Servers(wanted, environment.namesake(say))
    except Missing as error:
        say(f"missing peers {', '.join(NAMESAKES)}: {error}")
        return Servers(wanted, missing=dict.fromkeys(NAMESAKES, str(error)))


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


def add_token(file: Path, name: str, scope: str) -> str:
    """Add a token to the token file of a server, which is made if there is none. Return the token."""
    command = [sys.executable, "-m", "fastflight", "token", "add", name, "--scope", scope, "--file", str(file)]
    added = subprocess.run(command, capture_output=True, text=True, check=False)
    if added.returncode:
        raise DataError(f"no token was made: {added.stderr.strip()}")
    return added.stdout.strip()
