"""Suite `page`: a hundred viewers of the live page, which gets ten messages a second.

Boards that print ten rows a second, the server with its gateway, and the viewers are three processes. A viewer is a
WebSocket on `/ws/fleet` that reads everything; the work of a browser is not measured. Each cell is also measured with
one viewer, which shows what the boards cost. The server numbers its messages (`tick`), so skipped messages are noticed.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
from websockets.asyncio.client import ClientConnection, connect

from fastflight.app.nats_servers import free_ports
from fastflight.errors import FastFlightError
from fastflight_benchmark import output, report
from fastflight_benchmark.cores import cpu_seconds
from fastflight_benchmark.options import Options
from fastflight_benchmark.printing import printing
from fastflight_benchmark.printing_boards import Options as Boards
from fastflight_benchmark.spawned import spawned

# The interval of the live page's messages to a viewer (docs/page.md).
TICK_SECONDS = 0.1
# The targets: with this many viewers, each gets at least this share of its messages, and the server uses fewer cores
# than this.
TARGET_VIEWERS = 100
TARGET_SHARE = 0.9
TARGET_CORES = 1.0
# The pause until all lines are open and all viewers have their first message.
SETTLE_SECONDS = 3.0
# Far above the largest message: the points of a hundred devices in half a minute.
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
COLUMNS = [
    "run", "boards", "viewers", "seconds", "min_ticks", "median_ticks", "skipped", "kb_per_second", "server_cores",
    "boards_cores", "error",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scope:
    """Numbers of boards, numbers of viewers, and the seconds of each cell."""

    boards: tuple[int, ...]
    viewers: tuple[int, ...]
    seconds: float


FULL = Scope((10, 100), (1, TARGET_VIEWERS), 10.0)
QUICK = Scope((3,), (5,), 1.0)


@dataclass(slots=True)
class Seen:
    """The messages that one viewer received."""

    ticks: int = 0
    skipped: int = 0
    bytes: int = 0
    newest: int | None = None

    def take(self, message: str) -> None:
        self.ticks += 1
        self.bytes += len(message)
        tick = int(json.loads(message)["tick"])
        if self.newest is not None:
            self.skipped += tick - self.newest - 1
        self.newest = tick


def run(options: Options, scope: Scope | None = None) -> int:
    """Measure, save and show. Return how many cells failed."""
    scope = scope or (QUICK if options.quick else FULL)
    options.say("the boards, the server with its page, and the viewers are started here; --server is not used")
    description = options.describe("page", scope)
    found = []
    for number in range(1, options.runs + 1):
        for boards in scope.boards:
            for viewers in scope.viewers:
                found.append({"run": number, "boards": boards, "viewers": viewers} | _measured(boards, viewers, scope))
    raw = pd.DataFrame(found, columns=COLUMNS)
    result = summarize(raw)
    output.save(options.output, result, {"raw": raw}, description)
    show(options, result)
    failed = raw[raw["error"] != ""]
    report.show_end(options.console, description, failed["error"], options.output)
    return len(failed)


def summarize(raw: pd.DataFrame) -> pd.DataFrame:
    """Return medians of the runs of each cell, and the worst run of `min_ticks` and `skipped`."""
    kept = raw[raw["error"] == ""].drop(columns=["run", "error"])
    worst = {"min_ticks": "min", "skipped": "max"}
    keys = ["boards", "viewers"]
    how = {name: worst.get(name, "median") for name in kept.columns if name not in keys}
    return kept.groupby(keys, as_index=False).agg(how)[[*keys, *how]]


def show(options: Options, result: pd.DataFrame) -> None:
    """Show the table, and whether the target is met. A quick run is not judged."""
    grid = report.table(
        f"The page: {1 / TICK_SECONDS:.0f} messages a second to each viewer; medians, worst run of least and skipped",
        ("boards", "viewers", "least/s", "median/s", "skipped", "kB/s each"),
        "server, cores",
    )
    for row in result.to_dict("records"):
        grid.add_row(
            f"{row['boards']:.0f}",
            f"{row['viewers']:.0f}",
            f"{row['min_ticks'] / row['seconds']:.2f}",
            f"{row['median_ticks'] / row['seconds']:.2f}",
            f"{row['skipped']:.0f}",
            f"{row['kb_per_second']:.1f}",
            f"{row['server_cores']:.2f}",
        )
    options.console.print(grid)
    if options.quick:
        return
    for row in result[result["viewers"] == TARGET_VIEWERS].to_dict("records"):
        share = row["min_ticks"] / row["seconds"] * TICK_SECONDS
        text = (
            f"{row['boards']:.0f} boards: the least of {TARGET_VIEWERS} viewers had {share:.0%} of its messages, for"
            f" {row['server_cores']:.2f} cores; the target is {TARGET_SHARE:.0%} and under {TARGET_CORES:.0f} core"
        )
        met = share >= TARGET_SHARE and row["server_cores"] < TARGET_CORES
        report.show_met(options.console, [report.Target(text, met)])


def _measured(boards: int, viewers: int, scope: Scope) -> dict[str, Any]:
    try:
        return measure(boards, viewers, scope.seconds) | {"error": ""}
    except (FastFlightError, OSError, psutil.Error) as error:
        return {"error": str(error)}


def measure(boards: int, viewers: int, seconds: float) -> dict[str, Any]:
    """Measure one cell."""
    with ExitStack() as stack:
        fleet = stack.enter_context(printing(Boards(boards)))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fastflight-page-")))
        file = folder / "fleet.toml"
        file.write_text(fleet.toml())
        (port,) = free_ports(1)
        arguments = ["--server", "grpc://127.0.0.1:0", "--http", str(port), "--fleet", str(file)]
        server = stack.enter_context(spawned("fastflight", "serve", *arguments))
        processes = [psutil.Process(server.pid), psutil.Process(fleet.pid)]
        return asyncio.run(_watch(f"ws://127.0.0.1:{port}/ws/fleet", viewers, seconds, processes))


async def _watch(url: str, viewers: int, seconds: float, processes: list[psutil.Process]) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        connections = [
            await stack.enter_async_context(connect(url, max_size=MAX_MESSAGE_BYTES, compression=None))
            for _ in range(viewers)
        ]
        seen = [Seen() for _ in connections]
        reading = [asyncio.ensure_future(_read(each, viewer)) for each, viewer in zip(connections, seen, strict=True)]
        await asyncio.sleep(SETTLE_SECONDS)
        before = [Seen(viewer.ticks, viewer.skipped, viewer.bytes) for viewer in seen]
        used, began = [cpu_seconds(each) for each in processes], time.perf_counter()
        await asyncio.sleep(seconds)
        passed = time.perf_counter() - began
        cores = [(cpu_seconds(each) - earlier) / passed for each, earlier in zip(processes, used, strict=True)]
        received = pd.DataFrame(
            [
                {
                    "ticks": viewer.ticks - earlier.ticks,
                    "skipped": viewer.skipped - earlier.skipped,
                    "bytes": viewer.bytes - earlier.bytes,
                }
                for viewer, earlier in zip(seen, before, strict=True)
            ]
        )
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
    return {
        "seconds": passed,
        "min_ticks": received["ticks"].min(),
        "median_ticks": received["ticks"].median(),
        "skipped": received["skipped"].sum(),
        "kb_per_second": received["bytes"].median() / 1000 / passed,
        "server_cores": cores[0],
        "boards_cores": cores[1],
    }


async def _read(connection: ClientConnection, seen: Seen) -> None:
    async for message in connection:
        seen.take(str(message))
