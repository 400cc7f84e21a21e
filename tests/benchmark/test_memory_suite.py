"""The suite `memory` with small files: what is read is what was made, and the watch sees a process grow."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from fastflight_benchmark.options import Options
from fastflight_benchmark.suites import memory


def test_a_file_is_of_the_size_asked_for_and_known_exactly(tmp_path: Path) -> None:
    file = memory.make(tmp_path, 100_000)
    content = file.path.read_bytes()

    assert len(content) == file.size
    assert file.size == pytest.approx(100_000, rel=0.01)
    assert hashlib.sha256(content).hexdigest() == file.sha256
    assert len(pd.read_csv(file.path, parse_dates=["time"])) == file.rows


def test_the_worst_run_of_each_reading_is_shown_and_failed_ones_are_not() -> None:
    common = {"file_mb": 1.0, "mode": "sync", "baseline_mb": 100.0, "seconds": 1.0, "rows": 1}
    raw = pd.DataFrame(
        [
            common | {"reader": "fast", "run": 1, "peak_mb": 103.0, "held_mb": 3.0, "error": ""},
            common | {"reader": "fast", "run": 2, "peak_mb": 105.0, "held_mb": 5.0, "error": ""},
            common | {"reader": "fast", "run": 3, "peak_mb": 109.0, "held_mb": 9.0, "error": "gone"},
            common | {"reader": "slow", "run": 1, "peak_mb": 101.0, "held_mb": 1.0, "error": ""},
        ],
        columns=memory.COLUMNS,
    )

    assert memory.worst(raw)[["reader", "run", "held_mb"]].values.tolist() == [["fast", 2, 5.0], ["slow", 1, 1.0]]


def test_files_are_read_whole_on_the_path_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "WAIT_SECONDS", 0.0)
    monkeypatch.setattr(memory, "MODES", ("async",))
    path = tmp_path / "memory.csv"
    screen = io.StringIO()

    assert memory.run(Options("unused", True, 1, path, Console(file=screen, width=200)), sizes=(20_000,)) == 0

    result = pd.read_csv(path)
    assert set(zip(result["mode"], result["reader"], strict=True)) == {("async", "fast"), ("async", "slow")}
    assert (result["peak_mb"] >= result["baseline_mb"]).all()
    assert (result["rows"] > 400).all()
    assert path.with_suffix(".json").exists()
    assert "MiB that the server holds" in screen.getvalue()
