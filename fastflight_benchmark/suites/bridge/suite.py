"""Suite `bridge`: the cost of `fastflight bridge`, compared with other bridges and with the device alone.

Its parts: visits by our client, pyserial and mpremote (`connect`); round trips and throughput (`traffic`); a long
stream that is compared byte by byte (`whole`); idle sessions (`idle`). The compared servers take turns. Every server is
a process, as its users run it, on this computer's loopback.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass

from fastflight_benchmark import output, report
from fastflight_benchmark.options import Options
from fastflight_benchmark.suites.bridge import connect, idle, rows, traffic, visits, whole
from fastflight_benchmark.suites.bridge import report as bridge_report
from fastflight_benchmark.suites.bridge.rows import Row
from fastflight_benchmark.suites.bridge.servers import BAUD


@dataclass(frozen=True, slots=True)
class Scope:
    """How much is measured: visits by client and pairs in a run, round trips, bytes by device, idle seconds."""

    visits: Mapping[str, int]
    pairs: int
    round_trips: int
    bulk: Mapping[str, int]
    whole: int
    idle_seconds: float


FULL = Scope(
    visits=dict.fromkeys(visits.OURS, 10) | {visits.PYSERIAL: 5, visits.MPREMOTE: 3},
    pairs=16,
    round_trips=1000,
    bulk={traffic.TERMINAL: 16_000_000, traffic.SOCKET: 256_000_000},
    whole=1_000_000_000,
    idle_seconds=10.0,
)
QUICK = Scope(
    visits=dict.fromkeys(visits.OURS, 2) | {visits.PYSERIAL: 1, visits.MPREMOTE: 1},
    pairs=2,
    round_trips=200,
    bulk={traffic.TERMINAL: 2_000_000, traffic.SOCKET: 32_000_000},
    whole=50_000_000,
    idle_seconds=1.0,
)


def run(options: Options, scope: Scope | None = None) -> int:
    """Measure, save and show. Return how many measurements failed. A stream with wrong bytes counts as one."""
    scope = scope or (QUICK if options.quick else FULL)
    runs = options.runs
    peers = {name: importlib.metadata.version(name) for name in ("mpremote", "pyserial")}
    description = options.describe("bridge", asdict(scope) | {"baud": BAUD}, peers=peers)
    if not options.quick:
        options.console.print("two to three minutes for each run")
    parts: Mapping[str, Callable[[], Iterator[Row]]] = {
        "visits": lambda: connect.visited({client: count * runs for client, count in scope.visits.items()}),
        "mpremote beside socat": lambda: connect.beside_socat(scope.pairs * runs),
        "round trips": lambda: traffic.round_trips(scope.round_trips * runs),
        "bulk": lambda: traffic.bulk(runs, scope.bulk),
        "a long stream": lambda: whole.there_and_back(scope.whole, 1),
        "idle sessions": lambda: idle.watched(scope.idle_seconds, 1, terminals=not options.quick),
    }
    found: list[Row] = []
    with options.progress(len(parts)) as step:
        for name, measure in parts.items():
            step(name)
            found.extend(measure())
    raw = rows.frame(found)
    result = rows.summarize(raw)
    output.save(options.output, result, {"raw": raw}, description)
    bridge_report.show(options.console, result, judged=not options.quick)
    failed = raw[(raw["error"] != "") & ~raw["missing"]]
    report.show_end(options.console, description, failed["error"], options.output)
    wrong = raw[(raw["work"] == whole.WRONG) & (raw["value"] > 0) & (raw["error"] == "")]
    return len(failed) + len(wrong)
