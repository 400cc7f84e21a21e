"""Starts the servers of a run, each in a process of its own."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path

from fastflight.client import FastFlightClient
from fastflight.errors import RequestError, TransportError
from fastflight_benchmark import pacer
from fastflight_benchmark.contenders import BARE, MODES, NAMESAKES
from fastflight_benchmark.mock import Mock
from fastflight_benchmark.peers import environment
from fastflight_benchmark.peers.environment import Missing, Say
from fastflight_benchmark.processes import Spawned, finished, spawned, spawned_by

SERVER = "fastflight_benchmark.start_flight_server"
TABLE = "fastflight_benchmark.table"
FREE_PORT = "grpc://127.0.0.1:0"
TOKEN_SECONDS = 60.0
NAMESAKE_SCRIPT = Path(__file__).with_name("namesake.py")


@dataclass(frozen=True, slots=True)
class Servers:
    """The wanted servers. `namesake` is the interpreter of the environment that has PyPI's fastflight."""

    wanted: Set[str]
    namesake: Path | None = None
    missing: Mapping[str, str] = field(default_factory=dict)

    @contextlib.contextmanager
    def running(self, named: str | None) -> Iterator[dict[str, Spawned]]:
        """Start all servers and yield them by the names of contenders.

        `named` is the URL of a fastflight server that already runs; without it, one is started.
        """
        with contextlib.ExitStack() as stack:
            own = Spawned(named) if named else stack.enter_context(spawned(SERVER, "--server", FREE_PORT))
            found: dict[str, Spawned] = dict.fromkeys(MODES, own)
            if BARE in self.wanted:
                found[BARE] = stack.enter_context(spawned(TABLE, "--server", FREE_PORT))
            if self.namesake is not None:
                command = [str(self.namesake), "-I", str(NAMESAKE_SCRIPT), "--pacer", str(pacer.__file__)]
                peer = stack.enter_context(spawned_by(command, NAMESAKE_SCRIPT.name))
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
    """Return `location` if a fastflight server answers there that has the table, otherwise None.

    The suite measures that server and leaves it running. Any other answer is an error.
    """
    try:
        with FastFlightClient(location) as client:
            client.read_request(Mock(total_rows=1)).to_arrow()
    except TransportError:
        say(f"no server answers at {location}: starting one for each run")
        return None
    except RequestError as error:
        if error.where != "type":
            raise
        say(f"the server at {location} has no table, which start_flight_server.py has: starting one for each run")
        return None
    say(f"using the server that answers at {location}; it is left running")
    return location


def add_token(file: Path, name: str, scope: str) -> str:
    """Add a token to the token file of a server, which is made if there is none. Return the token."""
    command = [sys.executable, "-m", "fastflight", "token", "add", name, "--scope", scope, "--file", str(file)]
    return finished(command, TOKEN_SECONDS).output.strip()
