"""Suite `requests`: small do_get, get_flight_info and do_action per second, their 99th percentile, and their cost.

fastflight on both of its paths takes turns with a bare pyarrow server that reads each request and, where possible, with
PyPI's `fastflight`. The load comes from separate processes: Flight clients in Python, which check every answer, and
ghz, which uses neither Python nor Arrow. On a connection, each request follows the answer to the last one, so a rate
depends on server and load together. The server's processor time for a request does not depend on the load's own cost.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np

from fastflight.errors import DataError
from fastflight_benchmark.contenders import BARE, CONTENDERS, MODES, NAMESAKES, PEERS
from fastflight_benchmark.engine import LESS, MORE, Bench, Figures, Measure, Suite
from fastflight_benchmark.loading import ghz
from fastflight_benchmark.loading.calling import DO_ACTION, DO_GET, GET_FLIGHT_INFO
from fastflight_benchmark.loading.pool import Calls, Loaders
from fastflight_benchmark.mock import Mock
from fastflight_benchmark.peers import environment
from fastflight_benchmark.peers.environment import Missing
from fastflight_benchmark.peers.running import named_server, prepared
from fastflight_benchmark.processes import Spawned
from fastflight_benchmark.result import Label

CLIENT, GHZ = "flight-client", "ghz"
# The servers of each operation. PyPI's fastflight has only do_get. fastflight's action has no sync or async path.
SERVERS: Mapping[str, Sequence[str]] = {
    DO_GET: (BARE, *MODES, *NAMESAKES),
    GET_FLIGHT_INFO: (BARE, *MODES),
    DO_ACTION: (BARE, MODES[0]),
}
REQUEST = Mock(total_rows=10, rows_per_batch=10)
ACTION = "health"
WARM_UP_SECONDS = 0.1
# Loads a server, by its name as a contender, and returns what was measured.
Load: TypeAlias = Callable[[str, Spawned], Calls]


@dataclass(frozen=True, slots=True)
class Scope:
    """Numbers of connections, seconds of each load, and rounds in a run."""

    connections: tuple[int, ...]
    seconds: float
    rounds: int


# Several short loads in turns, not one long load, so that other work on the machine affects all servers.
FULL = Scope((1, 4, 16, 64), 0.5, 2)
QUICK = Scope((1, 16), 0.3, 1)


def run(bench: Bench) -> None:
    """Load every server with every operation. `DataError` ends the run if a server gives a wrong answer."""
    scope = bench.scope(FULL, QUICK)
    cells: list[dict[str, Label]] = [
        {"operation": operation, "load": load, "connections": connections}
        for operation, connections, load in itertools.product(SERVERS, scope.connections, (CLIENT, GHZ))
    ]
    wanted = {name for cell in cells for name in SERVERS[str(cell["operation"])] if bench.wants(cell, name)}
    servers = prepared(wanted, bench.say)
    bench.missing.update(servers.missing)
    program = _ghz(bench) if any(bench.wants(cell, name) for cell in cells[1::2] for name in wanted) else None
    named = named_server(bench.server, bench.say)
    for number in bench.rounds():
        rounds = bench.rounds(scope.rounds, number)
        with servers.running(named) as served, Loaders() as loaders:
            for cell in cells:
                operation, connections = str(cell["operation"]), int(cell["connections"])
                if cell["load"] == CLIENT:
                    load: Load = partial(_called, loaders, operation, connections, scope.seconds)
                elif program is not None:
                    load = partial(_loaded, program, operation, connections, scope.seconds)
                else:
                    continue
                warm_up = partial(_called, loaders, operation, connections, WARM_UP_SECONDS)
                contenders = {
                    name: partial(measured, warm_up, load, name, served[name])
                    for name in SERVERS[operation]
                    if name in served
                }
                bench.measure(cell, contenders, rounds)


def _ghz(bench: Bench) -> Path | None:
    """Return ghz, or None if it is not available."""
    try:
        program = environment.ghz(bench.say)
    except Missing as error:
        bench.missing[GHZ] = str(error)
        return None
    bench.facts["ghz"] = environment.ghz_version(program)
    return program


def measured(warm_up: Load, load: Load, name: str, server: Spawned) -> Figures:
    """Warm up, which checks the answers, and load the server. Return the figures."""
    if wrong := [error for error in warm_up(name, server).errors if error.startswith("WrongAnswer")]:
        raise DataError(wrong[0], where=name)
    before = server.cpu_seconds()
    calls = load(name, server)
    cpu = server.cpu_seconds() - before
    if calls.errors:
        raise DataError(calls.errors.most_common(1)[0][0], where=name)
    p50, p99 = np.percentile(1e3 * np.asarray(calls.latencies), (50, 99))
    return {
        "rate": len(calls.latencies) / calls.seconds,
        "median": float(p50),
        "99_%": float(p99),
        "server_CPU": 1e6 * cpu / len(calls.latencies),
    }


def _called(loaders: Loaders, operation: str, connections: int, seconds: float, name: str, server: Spawned) -> Calls:
    """Load a server with Flight clients."""
    return loaders.call(
        server.location,
        operation,
        _payload(operation, name),
        rows=REQUEST.total_rows,
        path=CONTENDERS[name].path,
        connections=connections,
        seconds=seconds,
    )


def _loaded(program: Path, operation: str, connections: int, seconds: float, name: str, server: Spawned) -> Calls:
    """Load a server with ghz."""
    payload = _payload(operation, name)
    loaded = ghz.load(program, server.location, operation, payload, connections=connections, seconds=seconds)
    return Calls(ghz.latencies(loaded), loaded["total"] / 1e9, ghz.errors(loaded))


def _payload(operation: str, name: str) -> bytes:
    return ACTION.encode() if operation == DO_ACTION else CONTENDERS[name].ticket(REQUEST)


SUITE = Suite(
    name="requests",
    title="Small requests; CPU: the server's, for each",
    measures={
        "rate": Measure("1/s", MORE),
        "median": Measure("ms", LESS),
        "99 %": Measure("ms"),
        "server CPU": Measure("us", LESS),
    },
    ours=MODES,
    references=PEERS,
    run=run,
)
