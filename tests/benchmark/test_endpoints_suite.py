"""The suite `endpoints`, small: every way gives the whole table, and each is compared with one endpoint of its run."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from fastflight_benchmark.options import Options
from fastflight_benchmark.suites import endpoints


def test_each_way_is_held_against_one_endpoint_of_the_same_run() -> None:
    common = {"mode": "sync", "rows": 1, "ordered": True, "error": ""}
    raw = pd.DataFrame(
        [
            common | {"endpoints": 1, "at_once": 1, "run": 1, "seconds": 4.0},
            common | {"endpoints": 4, "at_once": 4, "run": 1, "seconds": 1.0},
            common | {"endpoints": 1, "at_once": 1, "run": 2, "seconds": 8.0},
            common | {"endpoints": 4, "at_once": 4, "run": 2, "seconds": 4.0},
            common | {"endpoints": 4, "at_once": 4, "run": 3, "seconds": 0.1, "error": "gone"},
        ],
        columns=endpoints.COLUMNS,
    )
    result = endpoints.summary(raw).set_index("endpoints")
    assert result["times_one"].to_dict() == {1: 1.0, 4: 3.0}
    assert result["of_limit"].to_dict() == {1: 1.0, 4: 0.75}


def test_every_way_gives_the_whole_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "QUICK_ROWS", 35_000)
    monkeypatch.setattr(endpoints, "DELAY", 1e-7)
    path = tmp_path / "endpoints.csv"
    screen = io.StringIO()

    assert endpoints.run(Options("unused", True, 1, path, Console(file=screen, width=200))) == 0

    result = pd.read_csv(path)
    assert result["endpoints"].tolist() == [1, 4, 4, 32] * 2
    raw = pd.read_csv(tmp_path / "endpoints_raw.csv")
    assert set(raw["rows"]) == {35_000}
    assert path.with_suffix(".json").exists()
    assert "times one" in screen.getvalue()
