"""Suite `requests`: small do_get, get_flight_info and do_action per second, their 99th percentile, and their cost.

fastflight on both of its paths takes turns with a pyarrow server with prepared answers (`bare`), with one that parses
each request (`bare-parsing`), with prepared answers on grpc.aio, and, where possible, with PyPI's `fastflight`. The
load comes from separate processes: Flight clients in Python, which check every answer, and ghz, which uses neither
Python nor Arrow. On a connection, each request follows the answer to the last one, so a rate depends on server and load
together. The server's processor time for a request does not depend on the load's own cost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fastflight.errors import DataError
from fastflight_benchmark import output, report
from fastflight_benchmark.contenders import AIO, BARE, CONTENDERS, MODES, NAMESAKE_ASYNC, NAMESAKE_SYNC, PARSING, PEERS
from fastflight_benchmark.loading import ghz
from fastflight_benchmark.loading.calling import DO_ACTION, DO_GET, GET_FLIGHT_INFO, OPERATIONS
from fastflight_benchmark.loading.pool import Calls, Loaders
from fastflight_benchmark.options import Options
from fastflight_benchmark.peers import constant, environment
from fastflight_benchmark.peers.environment import Missing, Say
from fastflight_benchmark.peers.running import CONSTANT_MODULES, Served, named_server, prepared
from fastflight_benchmark.suites.requests import report as requests_report
from fastflight_benchmark.suites.requests import summary as requests_summary
from fastflight_benchmark.suites.requests.summary import RAW_COLUMNS

CLIENT, GHZ = LOADS = ("flight-client", "ghz")
# The servers of each operation. PyPI's fastflight has only do_get. fastflight's action has no sync or async path.
SERVERS: Mapping[str, Sequence[str]] = {
    DO_GET: (BARE, PARSING, *MODES, NAMESAKE_SYNC, NAMESAKE_ASYNC, AIO),
    GET_FLIGHT_INFO: (BARE, PARSING, *MODES, AIO),
    DO_ACTION: (BARE, MODES[0], AIO),
}
# The warm-up of each load, and the time of starting and ending it.
WARM_UP_SECONDS = 0.1
AROUND_SECONDS = 0.15


@dataclass(frozen=True, slots=True)
class Scope:
    """The measurements: numbers of connections, seconds of each load, rounds in each run, peers and loads."""

    connections: Sequence[int]
    seconds: float
    rounds: int = 1
    peers: Sequence[str] = PEERS
    loads: Sequence[str] = LOADS


# Several short loads in turns, not one long load, so that other work on the machine affects all servers.
FULL = Scope(connections=(1, 4, 16, 64), seconds=0.5, rounds=2)
QUICK = Scope(connections=(1, 16), seconds=0.3)


@dataclass(frozen=True, slots=True)
class Step:
    """One load on one server. `run` is the number of the round; each round loads every server once."""

    operation: str
    load: str
    connections: int
    mode: str
    run: int

    @property
    def labels(self) -> dict[str, str]:
        """The labels that `--only` compares."""
        return {
            "operation": self.operation,
            "load": self.load,
            "connections": str(self.connections),
            "server": self.mode,
        }

    @property
    def payload(self) -> bytes:
        """The ticket, the command, or the action's name."""
        if self.operation == DO_ACTION:
            return constant.ACTION.encode()
        return CONTENDERS[self.mode].ticket(constant.REQUEST)

    @property
    def path(self) -> str:
        """The path that the answer's schema must name."""
        return CONTENDERS[self.mode].path


def plan(scope: Scope, run: int) -> Iterator[Step]:
    """Yield all loads of one run. The servers take turns, in an order that is reversed each time."""
    for operation in OPERATIONS:
        modes = [mode for mode in SERVERS[operation] if mode in MODES or mode in scope.peers]
        for connections in scope.connections:
            for load in scope.loads:
                for round_ in range((run - 1) * scope.rounds + 1, run * scope.rounds + 1):
                    for mode in modes if round_ % 2 else reversed(modes):
                        yield Step(operation, load, connections, mode, round_)


def run(options: Options, scope: Scope | None = None) -> int:
    """Measure, save and show. Return how many requests failed."""
    scope = scope or (QUICK if options.quick else FULL)
    wanted = [options.chosen(plan(scope, number)) for number in range(1, options.runs + 1)]
    servers = prepared({step.mode for steps in wanted for step in steps}, CONSTANT_MODULES, options.say)
    program, missing = prepared_load({step.load for steps in wanted for step in steps}, options.say)
    absent = {**servers.missing, **missing}
    runs = [[step for step in steps if not {step.mode, step.load} & set(absent)] for steps in wanted]
    each = scope.seconds + WARM_UP_SECONDS + AROUND_SECONDS
    loads = sum(map(len, runs))
    options.say(f"{loads} loads of {scope.seconds:g} s, about {report.duration(loads * each)} in all")
    version = None if program is None else environment.ghz_version(program)
    description = options.describe("requests", scope, ghz=version) | servers.described() | {"missing": absent}
    named = named_server(options.server, options.say)
    rows: list[dict[str, Any]] = []
    for number, steps in enumerate(runs, 1):
        with servers.running(named) as served, Loaders() as loaders:
            places = dict.fromkeys(f"{name} at {one.location}" for name, one in served.items())
            options.say(f"run {number}: {', '.join(places)}")
            with options.profiled(served[MODES[0]].pid, number), options.console.status("") as status:
                for place, step in enumerate(steps, 1):
                    status.update(f"{place}/{len(steps)}: {' '.join(step.labels.values())}")
                    rows.append(measure(step, served[step.mode], loaders, program, scope.seconds))
    raw = pd.DataFrame(rows, columns=RAW_COLUMNS)
    result, ratios = requests_summary.aggregate(raw), requests_summary.ratios(raw)
    output.save(options.output, result, {"raw": raw, "ratios": ratios}, description)
    requests_report.show(options.console, result, ratios, judged=not options.quick)
    report.show_end(options.console, description, raw.loc[raw["error"] != "", "error"], options.output)
    return int(raw["failed"].sum())


def prepared_load(loads: Set[str], say: Say) -> tuple[Path | None, dict[str, str]]:
    """Return ghz if it is wanted and available. `say` gets the reason if it is not available."""
    if GHZ not in loads:
        return None, {}
    try:
        return environment.ghz(say), {}
    except Missing as error:
        say(f"missing load {GHZ}: {error}; only Flight clients in Python load the servers")
        return None, {GHZ: str(error)}


def measure(step: Step, server: Served, loaders: Loaders, program: Path | None, seconds: float) -> dict[str, Any]:
    """Warm up and load a server. Return a row of `RAW_COLUMNS`. The warm-up checks the answers, for ghz too."""
    refuse_wrong(step, _called(step, server, loaders, WARM_UP_SECONDS))
    before = server.cpu_seconds()
    if step.load == GHZ and program is not None:
        loaded = ghz.load(
            program, server.location, step.operation, step.payload, connections=step.connections, seconds=seconds
        )
        calls = Calls(ghz.latencies(loaded), loaded["total"] / 1e9, ghz.errors(loaded), float("nan"))
    else:
        calls = _called(step, server, loaders, seconds)
    return row(step, calls, server.cpu_seconds() - before)


def _called(step: Step, server: Served, loaders: Loaders, seconds: float) -> Calls:
    return loaders.call(
        server.location,
        step.operation,
        step.payload,
        rows=constant.REQUEST.total_rows,
        path=step.path,
        connections=step.connections,
        seconds=seconds,
    )


def refuse_wrong(step: Step, calls: Calls) -> None:
    """Raise `DataError` if the server gave another answer than requested."""
    wrong = [error for error in calls.errors if error.startswith("WrongAnswer")]
    if wrong:
        raise DataError(wrong[0], where=f"{step.operation} of {step.mode}", hint="Its result is not saved")


def row(step: Step, calls: Calls, server_cpu_seconds: float) -> dict[str, Any]:
    """Return the figures of a load. Percentiles are of the requests that succeeded."""
    succeeded, failed = len(calls.latencies), calls.errors.total()
    milliseconds = 1e3 * np.asarray(calls.latencies)
    p50, p99 = np.percentile(milliseconds, (50, 99)) if succeeded else (float("nan"), float("nan"))
    return asdict(step) | {
        "requests": succeeded,
        "failed": failed,
        "seconds": calls.seconds,
        "per_second": succeeded / calls.seconds,
        "p50_ms": p50,
        "p99_ms": p99,
        "server_cpu_us": 1e6 * server_cpu_seconds / max(succeeded + failed, 1),
        "load_cores": calls.cpu_seconds / calls.seconds,
        "error": _most_common(calls.errors),
    }


def _most_common(errors: Counter[str]) -> str:
    return errors.most_common(1)[0][0] if errors else ""
