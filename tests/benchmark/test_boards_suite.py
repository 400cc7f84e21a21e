"""The suite `boards`: several boards through one process, on both paths."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from fastflight_benchmark import plot_benchmark_results
from fastflight_benchmark.cores import idle_percent, peak_bytes
from fastflight_benchmark.options import Options
from fastflight_benchmark.suites.boards import suite as boards


class Times:
    """What psutil says of the cores."""

    _fields = ("user", "system", "idle", "guest")

    def __init__(self, user: float, idle: float) -> None:
        self.user, self.system, self.idle, self.guest = user, 0.0, idle, user


def test_a_guests_time_is_counted_once() -> None:
    assert idle_percent(Times(0, 0), Times(1, 3)) == 75.0


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system says it in another way")
def test_the_most_memory_is_of_the_process_itself_and_not_of_the_one_that_started_it() -> None:
    much = b"x" * 100_000_000  # written, so it is resident
    command = [sys.executable, "-c", "from fastflight_benchmark.cores import peak_bytes; print(peak_bytes())"]
    started = int(subprocess.run(command, capture_output=True, check=True).stdout)
    assert 1_000_000 < started < len(much) <= peak_bytes()


def rows(path: str, seconds: float, verified: int = 64, run: int = 1) -> dict[str, Any]:
    measured = dict.fromkeys(("threads", "peak_mb", "cpu_percent", "boards_cpu_percent", "idle_percent"), 2.0)
    fixed = {"boards": 64, "operation": "upload", "size": 11_520, "error": ""}
    return fixed | measured | {"path": path, "run": run, "seconds": seconds, "verified": verified}


def verdict(*measured: dict[str, Any]) -> str:
    screen = io.StringIO()
    result = boards.summarize(pd.DataFrame(measured))
    boards.show(Options("unused", False, 1, Path("unused"), Console(file=screen, width=200)), result)
    return screen.getvalue().strip().rpartition(": ")[2]


def test_the_target_is_met_by_runs_of_which_none_failed() -> None:
    assert verdict(rows("async", 1.0), rows("async", 1.0, run=2)) == "met"
    assert verdict(rows("async", 1.0), rows("async", 2.0, run=2)) == "missed"
    assert verdict(rows("async", 1.0), rows("async", 0.1, verified=63, run=2)) == "missed"


def test_a_run_that_failed_is_in_no_ratio() -> None:
    both = [rows("sync", 3.0), rows("async", 0.1, verified=1), rows("sync", 1.0, run=2), rows("async", 1.0, run=2)]
    assert boards.summarize(pd.DataFrame(both))["async_to_sync"].dropna().tolist() == [1.0]


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="this system has no pseudo-terminals")
@pytest.mark.usefixtures("fonts")
def test_boards_are_moved_to_and_from_at_once(tmp_path: Path) -> None:
    path = tmp_path / "boards.csv"
    options = Options("unused", True, 1, path, Console(file=io.StringIO(), width=200))

    assert boards.run(options, counts=(3,), size=2_000) == 0

    result = pd.read_csv(path)
    assert len(result) == 4
    assert set(result["verified"]) == {"3/3"}
    threads = result.set_index(["boards", "path", "operation"])["threads"]
    assert threads[3, "sync", "upload"] >= threads[3, "async", "upload"] + 2
    assert (result["of_lines"] > 0).all()
    [drawn] = plot_benchmark_results.draw(path, tmp_path)
    assert drawn.name == "boards_of_lines.png"
