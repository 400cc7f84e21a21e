"""Suite `boards`: many simulated boards at once through one process of ours, each on a line of 115200 baud.

The measured process (`fleet`) leases a device for each board and moves a file both ways with all of them at the same
time. It reports the time, its threads and its memory. Sync has a thread for each board, async one event loop for all.
The boards are processes on the same cores, so the suite also reports how busy all cores were.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd

from fastflight.errors import FastFlightError, TransportError
from fastflight_benchmark import output, report
from fastflight_benchmark.options import Options
from fastflight_benchmark.report import table
from fastflight_benchmark.simulated import SimulatedBoard
from fastflight_benchmark.suites.transfer.contents import ASYNC, DOWNLOAD, OURS, SYNC, UPLOAD, make
from fastflight_benchmark.table import WrongPath

FLEET = "fastflight_benchmark.suites.boards.fleet"
BAUD = 115_200
BYTES_PER_SECOND = BAUD / 10
COUNTS, QUICK_COUNTS = (1, 8, 64), (1, 8)
SIZE, QUICK_SIZE = 50_000, 10_000
# A line moves the bytes of this many milliseconds at once. With less, the suite would mostly measure the simulated
# lines of 64 boards. (USB adapters: 1 to 16.)
SLICE_MS = 8
# Far more than all transfers of a fleet take.
FLEET_SECONDS = 300.0
STARTED_AT_ONCE = 8
# The targets of the project for 64 boards on the async path.
TARGET_BOARDS, TARGET_OF_LINES, TARGET_THREADS = 64, 0.95, 16
COLUMNS = [
    "boards",
    "path",
    "operation",
    "runs",
    "seconds",
    "bytes_per_second",
    "of_lines",
    "async_to_sync",
    "threads",
    "peak_mb",
    "cpu_percent",
    "boards_cpu_percent",
    "idle_percent",
    "verified",
]
RAW_COLUMNS = [
    "boards",
    "path",
    "run",
    "operation",
    "size",
    "seconds",
    "threads",
    "peak_mb",
    "cpu_percent",
    "boards_cpu_percent",
    "idle_percent",
    "verified",
    "error",
]


def run(options: Options, counts: Sequence[int] = (), size: int = 0) -> int:
    """Measure, save and show. Return how many transfers failed."""
    counts = counts or (QUICK_COUNTS if options.quick else COUNTS)
    size = size or (QUICK_SIZE if options.quick else SIZE)
    scope = {"boards": counts, "size": size, "baud": BAUD, "slice_ms": SLICE_MS}
    description = options.describe("boards", scope)
    seconds = len(counts) * options.runs * len(OURS) * 2 * (size / BYTES_PER_SECOND + 1)
    options.console.print(f"up to {max(counts)} simulated boards, about {report.duration(seconds)} in all")
    content = make("random", size)
    rows = []
    for count in counts:
        with fleet(count) as boards:
            for number in range(1, options.runs + 1):
                for path in OURS if number % 2 else reversed(OURS):
                    with options.console.status(f"{count} boards, run {number}, {path}"):
                        rows += [{"run": number} | row for row in measure(boards, path, content)]
    raw = pd.DataFrame(rows, columns=RAW_COLUMNS)
    result = summarize(raw)
    output.save(options.output, result, {"raw": raw}, description)
    show(options, result)
    report.show_end(options.console, description, raw.loc[raw["error"] != "", "error"], options.output)
    return int((raw["boards"] - raw["verified"]).sum())


@contextlib.contextmanager
def fleet(count: int) -> Iterator[list[SimulatedBoard]]:
    """Start boards; they end with the context."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fastflight-boards-")))
        boards = [SimulatedBoard(folder / f"{number}", BAUD, "--slice", f"{SLICE_MS}") for number in range(count)]
        with ThreadPoolExecutor(min(count, STARTED_AT_ONCE)) as starting:
            for started in [starting.submit(stack.enter_context, board) for board in boards]:
                started.result()
        yield boards


def measure(boards: Sequence[SimulatedBoard], path: str, content: bytes) -> Iterator[dict[str, Any]]:
    """Run both operations on all boards at once, in a new process. Yield rows of `RAW_COLUMNS` without their run."""
    for board in boards:
        (board.folder / "up.bin").unlink(missing_ok=True)
        (board.folder / "down.bin").write_bytes(content)
    task = json.dumps(
        {
            "path": path,
            "urls": [f"serial://{board.path}?baud={BAUD}" for board in boards],
            "source": str(boards[0].folder / "down.bin"),
            "pids": [board.pid for board in boards],
        }
    )
    try:
        done = subprocess.run(
            [sys.executable, "-m", FLEET], input=task, capture_output=True, text=True, timeout=FLEET_SECONDS
        )
        if done.returncode:
            raise TransportError(done.stderr.strip()[-1000:], where=FLEET)
        answer = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, FastFlightError) as error:
        for operation in (UPLOAD, DOWNLOAD):
            yield _row(boards, path, operation, content) | {"verified": 0, "error": str(error)}
        return
    if answer["path"] != path:
        raise WrongPath(f"asked for the path {path!r}, moved on {answer['path']!r}")
    for operation in (UPLOAD, DOWNLOAD):
        figures = answer[operation]
        verified = figures.pop("verified")
        if operation == UPLOAD:
            verified = sum(_holds(board, content) for board in boards)
        errors = figures.pop("errors")
        yield _row(boards, path, operation, content) | figures | {"verified": verified, "error": "; ".join(errors[:3])}


def _row(boards: Sequence[SimulatedBoard], path: str, operation: str, content: bytes) -> dict[str, Any]:
    return {"boards": len(boards), "path": path, "operation": operation, "size": len(content)}


def _holds(board: SimulatedBoard, content: bytes) -> bool:
    file = board.folder / "up.bin"
    return file.exists() and file.read_bytes() == content


def summarize(raw: pd.DataFrame) -> pd.DataFrame:
    """Return a row of `COLUMNS` for each count, path and operation: medians, highest memory and most threads."""
    rows = []
    for count, operation in raw[["boards", "operation"]].drop_duplicates().itertuples(index=False):
        both = raw[(raw["boards"] == count) & (raw["operation"] == operation)]
        by_path = {str(path): group.set_index("run") for path, group in both.groupby("path")}
        # The time of a failed transfer says nothing.
        verified_by_path = {path: group[group["verified"] == count] for path, group in by_path.items()}
        for path, group in sorted(by_path.items(), reverse=True):
            verified_rows = verified_by_path[path]
            total = count * group["size"].iloc[0] / verified_rows["seconds"].median()
            ratio = float("nan")
            if path == ASYNC and SYNC in by_path:
                ratio = float((verified_by_path[SYNC]["seconds"] / verified_rows["seconds"]).median())
            rows.append(
                {
                    "boards": count,
                    "path": path,
                    "operation": operation,
                    "runs": len(group),
                    "seconds": verified_rows["seconds"].median(),
                    "bytes_per_second": total,
                    "of_lines": total / (count * BYTES_PER_SECOND),
                    "async_to_sync": ratio,
                    "threads": group["threads"].max(),
                    "peak_mb": group["peak_mb"].max(),
                    "cpu_percent": group["cpu_percent"].median(),
                    "boards_cpu_percent": group["boards_cpu_percent"].median(),
                    "idle_percent": group["idle_percent"].median(),
                    "verified": f"{group['verified'].sum()}/{count * len(group)}",
                }
            )
    return pd.DataFrame(rows, columns=COLUMNS)


def show(options: Options, result: pd.DataFrame) -> None:
    """Show the table, and whether the targets are met."""
    grid = table(
        f"Boards on lines of {BAUD} through one process; cpu: percent of a core; idle: percent of all cores",
        (
            "boards",
            "path",
            "operation",
            "kB/s",
            "of lines",
            "async to sync",
            "threads",
            "peak MiB",
            "cpu",
            "boards' cpu",
        ),
        "idle",
        "verified",
    )
    for row in result.to_dict("records"):
        ratio = row["async_to_sync"]
        grid.add_row(
            f"{row['boards']}",
            row["path"],
            row["operation"],
            f"{row['bytes_per_second'] / 1e3:.1f}",
            f"{100 * row['of_lines']:.1f} %",
            f"{ratio:.3f}" if ratio == ratio else "-",
            f"{row['threads']:.0f}",
            f"{row['peak_mb']:.0f}",
            f"{row['cpu_percent']:.0f} %",
            f"{row['boards_cpu_percent']:.0f} %",
            f"{row['idle_percent']:.0f} %",
            row["verified"],
        )
    options.console.print(grid)
    judged = result[(result["boards"] == TARGET_BOARDS) & (result["path"] == ASYNC)]
    for row in judged.to_dict("records"):
        verified, _, moved = row["verified"].partition("/")
        met = row["of_lines"] >= TARGET_OF_LINES and row["threads"] < TARGET_THREADS and verified == moved
        text = (
            f"{TARGET_BOARDS} boards, async {row['operation']}: {row['of_lines']:.3f} of the lines with "
            f"{row['threads']:.0f} threads; the target is {TARGET_OF_LINES} with fewer than {TARGET_THREADS}"
        )
        report.show_met(options.console, [report.Target(text, met)])
