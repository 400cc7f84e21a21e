"""Suite `flight`: sync compared with async, and both with peers, over the mock table.

The servers are fastflight on its sync and on its async path, pyarrow's server alone (`bare`), PyPI's `fastflight` on
both of its paths, and a reference on grpc.aio. They take turns, in an order that is reversed with each round (A B, B A,
...), so that drift affects all of them equally. Each run is a whole sweep with new processes and connections, because
two processes that do the same work can differ in speed for as long as they live. `plan` yields all work of a run in
order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import pandas as pd

from fastflight import Mock
from fastflight.errors import DataError
from fastflight_benchmark import output, report
from fastflight_benchmark.contenders import AIO, BARE, CONTENDERS, MODES, NAMESAKE_ASYNC, NAMESAKE_SYNC, PEERS
from fastflight_benchmark.loading.pool import Burst, Loaders, Outcome
from fastflight_benchmark.options import Options
from fastflight_benchmark.peers.running import TABLE_MODULES, Served, Servers, named_server, prepared
from fastflight_benchmark.suites.flight import report as flight_report
from fastflight_benchmark.suites.flight import summary
from fastflight_benchmark.suites.flight.summary import RAW_COLUMNS
from fastflight_benchmark.table import MIB, ceiling_mbps, check, expected_bytes

Variant = Literal["default", "simple", "complex"]

# Only for the estimate of the whole time: the throughput of a read without delay on a small machine, and the time of a
# batch. The async path of PyPI's fastflight takes longer, because it switches threads for each batch.
ASSUMED_MBPS = 800
ASSUMED_BATCH_SECONDS: Mapping[str, float] = {NAMESAKE_ASYNC: 2.5e-4}
ASSUMED_OTHER_BATCH_SECONDS = 5e-5
# How often a run reads without delay. Such a read takes a fraction of a second, and the ratio of a single pair is
# between 0.5 and 1.5. One reader reads the whole table; several readers together read two tables.
ROUNDS_ALONE = 3
ROUNDS_TOGETHER = 2
TABLES_TOGETHER = 2
# The most batches of a table. A million rows in batches of 40 would take the slowest peer five seconds.
MOST_BATCHES = 5_000
# Other columns than the default are read only in batches of at least this many rows: with small batches, the columns
# hardly matter.
LEAST_VARIANT_ROWS = 100
# With a delay, up to this many readers read the whole table each. More readers share this many tables.
MOST_WHOLE = 10
# Batches per reader in the warm-up of a cell, which opens connections and creates the source's batch.
WARM_UP_BATCHES = 5


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination of the sweep: rows in a batch, clients at once, microseconds for a row, rows of the table.

    Many clients, small batches and slow sources read less of the table, so that no cell takes long.
    """

    rows_per_batch: int
    clients: int
    delay_us: int
    total_rows: int


@dataclass(frozen=True, slots=True)
class Scope:
    """The measurements in each cell. `variants` are other columns than the default's, with the rows of their tables.

    With a delay, `peers` take part where rows per batch and clients are in `peer_cells`; without, everywhere.
    """

    variants: Mapping[Variant, int]
    peer_cells: Sequence[tuple[int, int]]
    peers: Sequence[str] = PEERS
    rounds_alone: int = ROUNDS_ALONE
    # The most seconds that the source takes for a table.
    paced_seconds: float = 1.0


# Each variant has at least 150 MiB: a read of a few milliseconds would only measure its first batch.
FULL = Scope(
    variants={"simple": 10_000_000, "complex": 4_000_000},
    peer_cells=[(40, 1), (1_000, 1), (1_000, 10), (10_000, 1), (10_000, 10)],
)
QUICK = Scope(
    variants={"simple": 1_000_000, "complex": 400_000},
    peer_cells=[(1_000, 1)],
    rounds_alone=2,
    paced_seconds=0.3,
)


@dataclass(frozen=True, slots=True)
class Step:
    """One burst of requests. `run` is the number of the round, in which every server is read once; 0 is the warm-up."""

    request: Mock
    mode: str
    concurrent: int
    run: int

    @property
    def seconds(self) -> float:
        """The estimated duration."""
        paced = self.request.total_rows * self.request.delay_per_row
        batches = self.concurrent * self.request.total_rows / self.request.rows_per_batch
        each = ASSUMED_BATCH_SECONDS.get(self.mode, ASSUMED_OTHER_BATCH_SECONDS)
        return max(paced, self.concurrent * expected_bytes(self.request) / MIB / ASSUMED_MBPS, batches * each)

    @property
    def labels(self) -> dict[str, str]:
        """The labels that `--only` compares."""
        return {
            "rows": str(self.request.rows_per_batch),
            "clients": str(self.concurrent),
            "delay": f"{self.request.delay_per_row * 1e6:g}",
            "variant": self.request.variant,
            "server": self.mode,
        }


def plan(cells: Iterable[Cell], scope: Scope, run: int) -> Iterator[Step]:
    """Yield all bursts of one run, cell by cell."""
    for cell in cells:
        yield from (_paced if cell.delay_us else _free)(cell, scope, run)


def _free(cell: Cell, scope: Scope, run: int) -> Iterator[Step]:
    """Yield the bursts of a cell without a delay. One client also reads the other variants."""
    rounds = _rounds(scope, cell.clients, run)
    whole = Mock(rows_per_batch=cell.rows_per_batch, total_rows=cell.total_rows)
    yield from _interleaved(_shared(whole, cell.clients), _order(scope.peers), cell.clients, rounds)
    if cell.clients == 1 and cell.rows_per_batch >= LEAST_VARIANT_ROWS:
        for variant, rows in scope.variants.items():
            request = whole.model_copy(update={"variant": variant, "total_rows": rows})
            yield from _interleaved(_shared(request, 1), _order({BARE} & set(scope.peers)), 1, rounds)


def _paced(cell: Cell, scope: Scope, run: int) -> Iterator[Step]:
    """Yield the bursts of a cell with a delay."""
    delay = cell.delay_us / 1e6
    rows = max(1, min(cell.total_rows, round(scope.paced_seconds / delay)))
    request = Mock(rows_per_batch=cell.rows_per_batch, delay_per_row=delay, total_rows=rows)
    with_peers = (cell.rows_per_batch, cell.clients) in scope.peer_cells
    peers = set(scope.peers) - {AIO} if with_peers else set()
    yield from _interleaved(_shared(request, cell.clients), _order(peers), cell.clients, (run,))


def _order(peers: Iterable[str]) -> Sequence[str]:
    """Return the servers in their order: the bare one, fastflight, then the other peers."""
    chosen = {*peers, *MODES}
    return [name for name in (BARE, *MODES, NAMESAKE_SYNC, NAMESAKE_ASYNC, AIO) if name in chosen]


def _rounds(scope: Scope, readers: int, run: int) -> range:
    each = scope.rounds_alone if readers == 1 else ROUNDS_TOGETHER
    return range((run - 1) * each + 1, run * each + 1)


def _shared(request: Mock, readers: int) -> Mock:
    """Return the request of one of `readers` readers. They share large tables."""
    rows = min(request.total_rows, MOST_BATCHES * request.rows_per_batch)
    if request.delay_per_row:
        rows = rows * MOST_WHOLE // max(readers, MOST_WHOLE)
    elif readers > 1:
        rows = min(rows, rows * TABLES_TOGETHER // readers)
    whole_batches = rows - rows % request.rows_per_batch
    return request.model_copy(update={"total_rows": whole_batches or max(rows, 1)})


def _interleaved(request: Mock, modes: Sequence[str], concurrent: int, runs: Iterable[int]) -> Iterator[Step]:
    short = min(request.total_rows, WARM_UP_BATCHES * request.rows_per_batch)
    warm_up = replace(Step(request, "", concurrent, 0), request=request.model_copy(update={"total_rows": short}))
    for mode in modes:
        yield replace(warm_up, mode=mode)
    for run in runs:
        for mode in modes if run % 2 else reversed(modes):
            yield Step(request, mode, concurrent, run)


def run(options: Options, cells: Sequence[Cell], scope: Scope | None = None, *, own_sizes: bool = False) -> int:
    """Measure, save and show. Return how many requests failed.

    With `own_sizes`, the sizes are the user's: only the default columns are read, and the peers read all cells.
    """
    scope = scope or (QUICK if options.quick else FULL)
    if own_sizes:
        scope = replace(scope, variants={}, peer_cells=[(cell.rows_per_batch, cell.clients) for cell in cells])
    wanted = [options.chosen(plan(cells, scope, number)) for number in range(1, options.runs + 1)]
    servers = prepared({step.mode for steps in wanted for step in steps}, TABLE_MODULES, options.say)
    runs = [[step for step in steps if step.mode not in servers.missing] for steps in wanted]
    seconds = sum(step.seconds for steps in runs for step in steps)
    options.console.print(f"{sum(map(len, runs))} bursts of requests, about {report.duration(seconds)} in all")
    sweep = {each.name: sorted({getattr(cell, each.name) for cell in cells}) for each in fields(Cell)}
    description = options.describe("flight", scope, sweep=sweep) | servers.described()
    raw = pd.DataFrame(list(_measured(runs, servers, options)), columns=RAW_COLUMNS)
    result, each, ratios = summary.aggregate(raw), summary.servers(raw), summary.ratios(raw)
    output.save(options.output, result, {"raw": raw, "servers": each, "ratios": ratios}, description)
    flight_report.show(options.console, result, each, ratios, judged=not (options.quick or own_sizes))
    failed = raw[raw["error"] != ""]
    report.show_end(options.console, description, failed["error"], options.output)
    return len(failed)


def _measured(runs: Sequence[Sequence[Step]], servers: Servers, options: Options) -> Iterator[dict[str, Any]]:
    named = named_server(options.server, options.say)
    with options.progress(sum(map(len, runs))) as done:
        for number, steps in enumerate(runs, 1):
            with servers.running(named) as served:
                places = dict.fromkeys(f"{name} at {one.location}" for name, one in served.items())
                options.console.print(f"run {number}: {', '.join(places)}")
                with options.profiled(served[MODES[0]].pid, number):
                    yield from measure(steps, served, done)


def measure(
    steps: Sequence[Step], served: Mapping[str, Served], done: Callable[[str], None] = lambda _: None
) -> Iterator[dict[str, Any]]:
    """Carry out `steps` with new processes and connections. Yield rows of `RAW_COLUMNS`.

    `WrongPath` ends the run.
    """
    with Loaders() as loaders:
        for step in steps:
            server = served[step.mode]
            before = server.cpu_seconds()
            ticket = CONTENDERS[step.mode].ticket(step.request)
            burst = loaders.read(server.location, ticket, step.concurrent)
            rows = list(_rows(step, burst, server.cpu_seconds() - before))
            if step.run:
                yield from rows
            done(_title(step))


def _checked(step: Step, outcome: Outcome) -> Outcome:
    """Return the outcome, with an error if its answer is wrong."""
    if outcome.answer is None:
        return outcome
    try:
        check(step.request, outcome.answer, step.mode)
    except DataError as error:
        return replace(outcome, error=f"{type(error).__name__}: {error}")
    return outcome


def _rows(step: Step, burst: Burst, server_cpu_seconds: float) -> Iterator[dict[str, Any]]:
    burst = replace(burst, outcomes=[_checked(step, outcome) for outcome in burst.outcomes])
    for number, outcome in enumerate(burst.outcomes, 1):
        yield {
            "variant": step.request.variant,
            "total_rows": step.request.total_rows,
            "rows_per_batch": step.request.rows_per_batch,
            "concurrent_requests": step.concurrent,
            "delay_per_row": step.request.delay_per_row,
            "mode": step.mode,
            "run": step.run,
            "request": number,
            "latency_seconds": outcome.latency_seconds,
            "first_batch_seconds": outcome.first_batch_seconds,
            "bytes": outcome.bytes,
            "messages": outcome.answer.messages if outcome.answer else 0,
            "run_throughput_mbps": burst.throughput_mbps,
            "server_cpu_seconds": server_cpu_seconds,
            "reader_cpu_seconds": burst.cpu_seconds,
            "run_seconds": burst.seconds,
            "ceiling_mbps": ceiling_mbps(step.request),
            "error": outcome.error,
        }


def _title(step: Step) -> str:
    delay = f"{step.request.delay_per_row * 1e6:g} us/row" if step.request.delay_per_row else "no delay"
    return f"{delay}, {step.request.rows_per_batch} rows x {step.concurrent}, {step.mode}"
