"""The suite `boards`: several boards through one process, on both paths."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from fastflight_benchmark import plot_benchmark_results
from fastflight_benchmark.cores import idle_percent
from fastflight_benchmark.suites import Options, boards


class Times:
    """What psutil says of the cores."""

    _fields = ("user", "system", "idle", "guest")

    def __init__(self, user: float, idle: float) -> None:
        self.user, self.system, self.idle, self.guest = user, 0.0, idle, user


def test_a_guests_time_is_counted_once() -> None:
    assert idle_percent(Times(0, 0), Times(1, 3)) == 75.0


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
