"""Suite `flight`: sync against async, and both against bare pyarrow, over the mock table.

Three servers are read in turn: fastflight on its sync path, fastflight on its async path, and the bare peer. What is
compared stands next to each other in time, in an order that turns around with each run (A B, B A, ...), so that drift
falls on all alike. Each run is a sweep with new processes and connections: two that do the same can differ for as long
as they live, which reading them again and again would not show. `plan` is the whole order of work
of a run; nothing is measured that is not in it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import pandas as pd
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fastflight.client import FastFlightClient
from fastflight.errors import TransportError
from fastflight.service.requests import Mock
from fastflight_benchmark import machine, output, report, summary
from fastflight_benchmark.burst import Burst, Readers
from fastflight_benchmark.mock_data_service import BARE, MIB, ceiling_mbps, expected_bytes
from fastflight_benchmark.spawned import spawned
from fastflight_benchmark.suites.options import Options
from fastflight_benchmark.summary import MODES, RAW_COLUMNS

Variant = Literal["default", "simple", "complex"]

SERVER = "fastflight_benchmark.start_flight_server"
PEER = "fastflight_benchmark.mock_data_service"
FREE_PORT = "grpc://127.0.0.1:0"
# For the estimate of the whole time only: what a read without delay reaches on a small machine.
ASSUMED_MBPS = 800
# How often a run reads without delay and by one reader, for the ratios: that takes a fraction of a second, and single
# pairs lie between half and one and a half.
ROUNDS_PER_RUN = 10
# Batches per reader that warm a cell up: connections are made, and the batch that the source gives exists.
WARM_UP_BATCHES = 5


@dataclass(frozen=True, slots=True)
class Scope:
    """What is swept. `free_rows` are the rows of each variant that are read without delay."""

    total_rows: int
    rows_per_batch: Sequence[int]
    concurrent: Sequence[int]
    delays: Sequence[float]
    free_rows: Mapping[Variant, int]


# Without delay each variant has rows for 150 MiB and more: a read of a few milliseconds measures its first batch.
FULL = Scope(
    total_rows=1_000_000,
    rows_per_batch=(1_000, 5_000, 10_000),
    concurrent=(1, 3, 5, 10),
    delays=(1e-6, 1e-5),
    free_rows={"default": 1_000_000, "simple": 10_000_000, "complex": 4_000_000},
)
QUICK = Scope(
    total_rows=30_000,
    rows_per_batch=(1_000, 5_000, 10_000),
    concurrent=(1, 3),
    delays=(1e-6, 1e-5),
    free_rows={"default": 200_000, "simple": 1_000_000, "complex": 400_000},
)


@dataclass(frozen=True, slots=True)
class Step:
    """One burst. Run 0 warms up and is not kept."""

    request: Mock
    mode: str
    concurrent: int
    run: int

    @property
    def seconds(self) -> float:
        """About how long it will take."""
        paced = self.request.total_rows * self.request.delay_per_row
        return max(paced, self.concurrent * expected_bytes(self.request) / MIB / ASSUMED_MBPS)


def plan(scope: Scope, run: int) -> Iterator[Step]:
    """All bursts of one run: per batch size and readers first without delay (the limit), then with each delay."""
    rounds = range((run - 1) * ROUNDS_PER_RUN + 1, run * ROUNDS_PER_RUN + 1)
    for rows_per_batch in scope.rows_per_batch:
        for concurrent in scope.concurrent:
            for variant, rows in scope.free_rows.items():
                request = Mock(rows_per_batch=rows_per_batch, variant=variant, total_rows=rows)
                if concurrent == 1:
                    yield from _interleaved(request, (BARE, *MODES), 1, rounds)
                elif variant == "default":
                    yield from _interleaved(request, (BARE, *MODES), concurrent, (run,))
            for delay in scope.delays:
                request = Mock(rows_per_batch=rows_per_batch, delay_per_row=delay, total_rows=scope.total_rows)
                yield from _interleaved(request, MODES, concurrent, (run,))


def _interleaved(request: Mock, modes: Sequence[str], concurrent: int, runs: Iterable[int]) -> Iterator[Step]:
    short = min(request.total_rows, WARM_UP_BATCHES * request.rows_per_batch)
    warm_up = request.model_copy(update={"total_rows": short, "delay_per_row": 0.0})
    for mode in modes:
        yield Step(_asking(warm_up, mode), mode, concurrent, 0)
    for run in runs:
        for mode in modes if run % 2 else reversed(modes):
            yield Step(_asking(request, mode), mode, concurrent, run)


def _asking(request: Mock, mode: str) -> Mock:
    return request.model_copy(update={"mode": "sync" if mode == BARE else mode})


def run(options: Options, scope: Scope | None = None) -> int:
    """Measure, save, show. The number of requests that failed."""
    scope = scope or (QUICK if options.quick else FULL)
    runs = [list(plan(scope, number)) for number in range(1, options.runs + 1)]
    seconds = sum(step.seconds for steps in runs for step in steps)
    if options.quick:
        options.console.print("a quick run: it shows that all works, and not how fast")
    options.console.print(f"{sum(map(len, runs))} bursts of requests, about {report.duration(seconds)} in all")
    description: dict[str, Any] = {
        "suite": "flight",
        "quick": options.quick,
        "runs": options.runs,
        "scope": asdict(scope),
        "machine": machine.describe(),
    }
    raw = pd.DataFrame(list(_measured(runs, options)), columns=RAW_COLUMNS)
    result, ratios = summary.aggregate(raw), summary.ratios(raw)
    output.save(options.output, result, {"raw": raw, "ratios": ratios}, description)
    report.show_flight(options.console, result, ratios, judged=not options.quick)
    failed = raw[raw["error"] != ""]
    report.show_failures(options.console, failed["error"])
    options.console.print(
        f"{machine.in_one_line(description['machine'])}\n{options.output}", style="dim", soft_wrap=True
    )
    return len(failed)


def answers(location: str) -> bool:
    """Whether a fastflight server with the mock table is there. What answers in another way is an error."""
    try:
        with FastFlightClient(location) as client:
            client.read_request(Mock(total_rows=1)).to_arrow()
    except TransportError:
        return False
    return True


def _measured(runs: Sequence[Sequence[Step]], options: Options) -> Iterator[dict[str, Any]]:
    named = answers(options.server)
    if named:
        options.console.print(f"using the server that answers at {options.server}; it is left running")
    else:
        options.console.print(f"no server answers at {options.server}: starting one for each run")
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=options.console, transient=True) as bar:
        task = bar.add_task("starting", total=sum(map(len, runs)))

        def progress(step: Step) -> None:
            bar.update(task, advance=1, description=_title(step))

        for number, steps in enumerate(runs, 1):
            own = contextlib.nullcontext() if named else spawned(SERVER, "--server", FREE_PORT)
            with own as server, spawned(PEER, "--server", FREE_PORT) as peer:
                location = server.location if server else options.server
                options.console.print(f"run {number}: fastflight at {location}, bare pyarrow at {peer.location}")
                yield from measure(steps, {BARE: peer.location, **dict.fromkeys(MODES, location)}, progress)


def measure(
    steps: Sequence[Step], locations: Mapping[str, str], progress: Callable[[Step], None] = lambda _: None
) -> Iterator[dict[str, Any]]:
    """Carry out `steps`, with new connections: `locations` says where each mode is served. Rows of `RAW_COLUMNS`."""
    with Readers(max((step.concurrent for step in steps), default=1)) as readers:
        for step in steps:
            burst = readers.burst(locations[step.mode], step.request, step.mode, step.concurrent)
            if step.run:
                yield from _rows(step, burst)
            progress(step)


def _rows(step: Step, burst: Burst) -> Iterator[dict[str, Any]]:
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
            "bytes": outcome.bytes,
            "run_throughput_mbps": burst.throughput_mbps,
            "ceiling_mbps": ceiling_mbps(step.request),
            "error": outcome.error,
        }


def _title(step: Step) -> str:
    delay = f"{step.request.delay_per_row * 1e6:g} us/row" if step.request.delay_per_row else "no delay"
    return f"{delay}, {step.request.rows_per_batch} rows x {step.concurrent}, {step.mode:5}"
