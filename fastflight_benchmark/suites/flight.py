"""Suite `flight`: sync against async, and both against bare pyarrow, over the mock table.

Three servers are read in turn: fastflight on its sync path, fastflight on its async path, and the bare peer. What is
compared stands next to each other in time, in an order that turns around with each run (A B, B A, ...), so that drift
falls on all alike. `plan` is the whole order of work; nothing is measured that is not in it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
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
# Rounds of a ratio per run of a cell: a read without delay takes a fraction of a second, and varies more.
ROUNDS_PER_RUN = 3
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
    total_rows=50_000,
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


def plan(scope: Scope, runs: int) -> Iterator[Step]:
    """All bursts in order: per batch size and concurrency without delay (the limit), then with each delay."""
    for rows_per_batch in scope.rows_per_batch:
        for concurrent in scope.concurrent:
            for variant, rows in scope.free_rows.items():
                if concurrent == 1:
                    request = Mock(rows_per_batch=rows_per_batch, variant=variant, total_rows=rows)
                    yield from _interleaved(request, (BARE, *MODES), 1, ROUNDS_PER_RUN * runs)
                elif variant == "default":
                    request = Mock(rows_per_batch=rows_per_batch, total_rows=rows)
                    yield from _interleaved(request, (BARE, *MODES), concurrent, runs)
            for delay in scope.delays:
                request = Mock(rows_per_batch=rows_per_batch, delay_per_row=delay, total_rows=scope.total_rows)
                yield from _interleaved(request, MODES, concurrent, runs)


def _interleaved(request: Mock, modes: Sequence[str], concurrent: int, runs: int) -> Iterator[Step]:
    short = min(request.total_rows, WARM_UP_BATCHES * request.rows_per_batch)
    warm_up = request.model_copy(update={"total_rows": short, "delay_per_row": 0.0})
    for mode in modes:
        yield Step(_asking(warm_up, mode), mode, concurrent, 0)
    for run in range(1, runs + 1):
        for mode in modes if run % 2 else reversed(modes):
            yield Step(_asking(request, mode), mode, concurrent, run)


def _asking(request: Mock, mode: str) -> Mock:
    return request.model_copy(update={"mode": "sync" if mode == BARE else mode})


def run(options: Options, scope: Scope | None = None) -> int:
    """Measure, save, show. The number of requests that failed."""
    scope = scope or (QUICK if options.quick else FULL)
    steps = list(plan(scope, options.runs))
    seconds = sum(step.seconds for step in steps)
    if options.quick:
        options.console.print("a quick run: it shows that all works, and not how fast")
    options.console.print(f"{len(steps)} bursts of requests, about {report.duration(seconds)} in all")
    description: dict[str, Any] = {
        "suite": "flight",
        "quick": options.quick,
        "runs": options.runs,
        "scope": asdict(scope),
        "machine": machine.describe(),
    }
    with server_at(options) as location, spawned(PEER, "--server", FREE_PORT) as peer:
        options.console.print(f"bare pyarrow peer at {peer.location}, in a process of its own")
        raw = measure(steps, {BARE: peer.location, **dict.fromkeys(MODES, location)}, options)
    result, ratios = summary.aggregate(raw), summary.ratios(raw)
    output.save(options.output, result, {"raw": raw, "ratios": ratios}, description)
    report.show_flight(options.console, result, ratios)
    failed = raw[raw["error"] != ""]
    report.show_failures(options.console, failed["error"])
    options.console.print(
        f"{machine.in_one_line(description['machine'])}\n{options.output}", style="dim", soft_wrap=True
    )
    return len(failed)


@contextlib.contextmanager
def server_at(options: Options) -> Iterator[str]:
    """A fastflight server: the one that was named, if it answers, else one that lives as long as this context."""
    try:
        with FastFlightClient(options.server) as client:
            client.read_request(Mock(total_rows=1)).to_arrow()
    except TransportError:
        options.console.print(f"no server answers at {options.server}: starting one for this run")
        with spawned(SERVER, "--server", FREE_PORT) as own:
            options.console.print(f"own server at {own.location}, in a process of its own")
            yield own.location
    else:
        options.console.print(f"using the server that answers at {options.server}; it is left running")
        yield options.server


def measure(steps: Sequence[Step], locations: dict[str, str], options: Options) -> pd.DataFrame:
    """Carry out the plan: `locations` says where each mode is served. A frame of `RAW_COLUMNS`."""
    rows: list[dict[str, Any]] = []
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(elapsed_when_finished=False),
    )
    with (
        Readers(max((step.concurrent for step in steps), default=1)) as readers,
        Progress(*columns, console=options.console, transient=True) as bar,
    ):
        task = bar.add_task("", total=len(steps))
        for step in steps:
            bar.update(task, description=_title(step))
            burst = readers.burst(locations[step.mode], step.request, step.mode, step.concurrent)
            if step.run:
                rows.extend(_rows(step, burst))
            bar.advance(task)
    return pd.DataFrame(rows, columns=RAW_COLUMNS)


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
