"""Suite `cluster`: several servers that share devices, and how many devices they can have.

Four parts: `requests`, of clients that ask any server (`requesting`); `scale`, with many boards that are recorded and
watched (`scaling`); `silent`, with more boards, which print nothing; `placement`, which only computes (`placement`).
Servers, NATS nodes, boards and clients are processes on this computer and share its cores, so rates are those of all of
them together. The boards are light: they print rows, and thousands of them share a process.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import psutil

from fastflight.errors import FastFlightError
from fastflight_benchmark import output, report
from fastflight_benchmark.options import Options
from fastflight_benchmark.report import Target, table
from fastflight_benchmark.suites.cluster import placement, requesting, scaling
from fastflight_benchmark.suites.cluster.stage import NATS_NODES
from fastflight_benchmark.worker import Worker

COLUMNS = ["part", "devices", "servers", "viewers", "what", "value", "unit"]
# Servers that need longer to record the last row had a backlog. Without one it takes about a second.
KEPT_UP_SECONDS = 10.0
REQUESTS, SCALE, SILENT, PLACEMENT = "requests", "scale", "silent", "placement"


@dataclass(frozen=True, slots=True)
class Scope:
    """What is measured: requests to each number of servers, and `sharing` servers with each number of devices."""

    devices: Sequence[int]
    viewers: int
    # As `devices`, but they print nothing.
    silent: Sequence[int]
    # 0 is one server without a cluster.
    servers: Sequence[int]
    sharing: int
    seconds: float
    # The longest wait for devices to find an owner.
    wait_seconds: float
    # Of the computed placement: devices, servers, and how many servers join and die.
    placed: tuple[int, int, int]


FULL = Scope((1_000, 2_000, 4_000), 1_000, (10_000,), (0, 1, 2, 4), 4, 20.0, 600.0, (1_000_000, 1_000, 20))
QUICK = Scope((40,), 8, (40,), (0, 2), 2, 2.0, 60.0, (20_000, 20, 10))


def run(options: Options, scope: Scope | None = None) -> int:
    """Measure, save and show. Return how many cells failed."""
    scope = scope or _sized(options, QUICK if options.quick else FULL)
    description = options.describe("cluster", scope, nats_nodes=NATS_NODES, load=psutil.getloadavg()[0])
    options.say(
        f"{NATS_NODES} NATS nodes, servers, boards and clients are started here; --server is not used. The boards are"
        " light: they only print, thousands of them in one process"
    )
    rows: list[dict[str, Any]] = []
    errors: list[str] = []
    raw: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(Worker(requesting.MODULE)) for _ in range(requesting.PROCESSES)]
        for worker in workers:
            worker.hear()
        for servers in scope.servers:
            options.say(f"{REQUESTS}: {servers or 'one without a cluster'}")
            with _noted(errors, f"{REQUESTS} of {servers} servers"):
                raw += requesting.measure(servers, scope.seconds / 5, options.runs, workers)
        requested = pd.DataFrame(raw, columns=requesting.COLUMNS_OF_RAW)
        rows += _of_requests(requested)
        idle = requested.loc[requested["servers"] == max(scope.servers), "memory_per_server"].median()
        cells = [(SCALE, devices, min(scope.viewers, devices)) for devices in scope.devices]
        cells += [(SILENT, devices, 0) for devices in scope.silent]
        for part, devices, viewers in cells:
            cell = scaling.Scope(devices, viewers, scope.sharing, scope.seconds, scope.wait_seconds)
            about = {"part": part, "devices": devices, "servers": cell.servers, "viewers": cell.viewers}
            with _noted(errors, f"{part} of {devices} devices"):
                for what, value, unit in scaling.measure(cell, workers, idle):
                    options.say(f"{devices} devices: {what}: {value:,.6g} {unit}")
                    rows.append(about | {"what": what, "value": value, "unit": unit})
    rows += _of_placement(*scope.placed)
    result = pd.DataFrame(rows, columns=COLUMNS)
    output.save(options.output, result, {"raw": requested}, description)
    show(options, result)
    failed = pd.Series([*errors, *requested.loc[requested["error"] != "", "error"]], dtype=object)
    report.show_end(options.console, description, failed, options.output)
    return len(failed)


def _sized(options: Options, scope: Scope) -> Scope:
    """Return `scope` with the sizes of the command line."""
    sizes = options.sizes
    servers = sizes.get("servers") or scope.servers
    return replace(
        scope,
        devices=sizes.get("devices") or scope.devices,
        viewers=(sizes.get("viewers") or [scope.viewers])[0],
        silent=sizes.get("silent") or (() if sizes.get("devices") else scope.silent),
        servers=tuple(dict.fromkeys((0, *servers))),
        sharing=max(servers),
    )


@contextlib.contextmanager
def _noted(errors: list[str], where: str) -> Iterator[None]:
    """Note an error of the block, so that the other cells are measured all the same."""
    try:
        yield
    except (FastFlightError, OSError) as error:
        errors.append(f"{where}: {type(error).__name__}: {error}")


def _of_requests(raw: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield medians of the runs."""
    for (servers, rows), cell in raw.groupby(["servers", "rows"], sort=True):
        about = {"part": REQUESTS, "devices": requesting.BOARDS, "servers": servers, "viewers": 0}
        figures = {
            f"requests of {rows} rows": ("requests_per_second", "1/s"),
            f"rows by {rows}": ("rows_per_second", "1/s"),
            f"time of a request of {rows} rows": ("p50_ms", "ms"),
            f"servers for a request of {rows} rows": ("server_cpu_us", "us"),
            f"passed on, of requests of {rows} rows": ("passed_on", "share"),
        }
        for what, (column, unit) in figures.items():
            yield about | {"what": what, "value": cell[column].median(), "unit": unit}


def _of_placement(devices: int, servers: int, changes: int) -> Iterator[dict[str, Any]]:
    began = time.perf_counter()
    moves = placement.simulate(devices, servers, changes)
    about = {"part": PLACEMENT, "devices": devices, "servers": servers, "viewers": 0}
    figures = {
        "servers that join, and that die": (changes, "servers"),
        "moved at joins": (moves.joined, "devices"),
        "moved at joins, by the least possible": (moves.joined / moves.least_joined, "ratio"),
        "moved at deaths": (moves.died, "devices"),
        "moved at deaths, by the least possible": (moves.died / moves.least_died, "ratio"),
        "devices of the fullest server, by the mean": (moves.fullest, "ratio"),
        "time of the computation": (time.perf_counter() - began, "s"),
    }
    for what, (value, unit) in figures.items():
        yield about | {"what": what, "value": value, "unit": unit}


def judged(result: pd.DataFrame) -> Iterator[Target]:
    """Yield the targets with what was reached."""
    for (part, devices), cell in result.groupby(["part", "devices"], sort=True):
        found = cell.set_index("what")["value"]
        if part == PLACEMENT:
            worst = max(found[f"moved at {event}, by the least possible"] for event in ("joins", "deaths"))
            yield Target(
                f"{devices:,} devices: {worst:.4f} of the least possible moves, at most {placement.LIMIT}",
                worst <= placement.LIMIT,
            )
        elif part == SCALE:
            text, met = verdict(found)
            yield Target(f"{devices:,} devices: {text}", met)


def verdict(found: pd.Series[float]) -> tuple[str, bool]:
    """Return whether a cell of `scale` worked, and what ended it, as text."""
    for what in ("not placed", "not settled"):
        if not found.get(what, 1.0) == 0:
            return f"{what} in time: {found.get(what, float('nan')):,.0f} devices", False
    expected = found["rows expected by viewers"]
    text = (
        f"{found['rows recorded']:,.0f} of {found['rows printed']:,.0f} rows recorded,"
        f" {found['recorded after the last row']:.1f} s after the last one;"
        f" {found['rows seen by viewers']:,.0f} of {expected:,.0f} seen;"
        f" {found['without owner at the end']:,.0f} devices without an owner; {found['rows']:,.0f} rows per second,"
        f" {found['idle']:.0f} % of all cores idle"
    )
    whole = (
        found["rows recorded"] == found["rows printed"]
        and found["rows seen by viewers"] == expected
        and found["recordings that differ"] == found["without owner at the end"] == found["viewers with errors"] == 0
        and found["recorded after the last row"] <= KEPT_UP_SECONDS
    )
    return text, bool(whole)


def show(options: Options, result: pd.DataFrame) -> None:
    """Show all figures, a table for each cell, and the targets."""
    for (part, devices), cell in result.groupby(["part", "devices"], sort=False):
        wide = cell.pivot(index=["what", "unit"], columns="servers", values="value").reindex(
            pd.MultiIndex.from_frame(cell[["what", "unit"]].drop_duplicates())
        )
        heads = [f"{count} servers" if count else "alone" for count in wide.columns]
        shown = table(f"{part}, {devices:,} devices", ["what", *heads], "unit")
        for (what, unit), values in zip(wide.index, wide.to_numpy(), strict=True):
            shown.add_row(what, *(f"{value:,.4g}" for value in values), unit)
        options.console.print(shown)
    report.show_met(options.console, judged(result))
