"""The suite `cluster`, small: every figure is there, all rows arrive, and what is missing is said."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from fastflight_benchmark.options import Options
from fastflight_benchmark.suites.cluster import suite

WORKED = {
    "not placed": 0.0,
    "not settled": 0.0,
    "rows printed": 100.0,
    "rows recorded": 100.0,
    "recordings that differ": 0.0,
    "rows expected by viewers": 50.0,
    "rows seen by viewers": 50.0,
    "viewers with errors": 0.0,
    "without owner at the end": 0.0,
    "recorded after the last row": 1.0,
    "rows": 20.0,
    "idle": 50.0,
}


def test_a_small_cluster_loses_no_row(tmp_path: Path) -> None:
    screen, path = io.StringIO(), tmp_path / "cluster.csv"
    options = Options("unused", True, 1, path, Console(file=screen, width=200))
    assert (
        suite.run(options, replace(suite.QUICK, devices=(8,), viewers=4, silent=(6,), servers=(0,), seconds=1.0)) == 0
    )
    result = pd.read_csv(path)
    assert set(result["part"]) == {suite.REQUESTS, suite.SCALE, suite.SILENT, suite.PLACEMENT}
    silent = result[result["part"] == suite.SILENT].set_index("what")["value"]
    assert silent["not placed"] == silent["not owned after a kill"] == silent["not moved back after a join"] == 0
    assert silent["rows"] == 0 and silent["memory of servers"] > 0
    scale = result[result["part"] == suite.SCALE].set_index("what")["value"]
    text, whole = suite.verdict(scale)
    assert whole, text
    assert scale["rows seen by viewers"] > 0 and scale["NATS in"] > 0
    assert scale["not owned after a kill"] == scale["not moved back after a join"] == 0
    requests = result[result["part"] == suite.REQUESTS]
    assert requests["servers"].unique().tolist() == [0]
    assert (requests["value"] >= 0).all() and f"{suite.PLACEMENT}, 20,000 devices" in screen.getvalue()


@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("rows recorded", 99.0),
        ("rows recorded", 101.0),
        ("rows seen by viewers", 49.0),
        ("recordings that differ", 1.0),
        ("viewers with errors", 1.0),
        ("without owner at the end", 1.0),
        ("recorded after the last row", 11.0),
        ("not placed", 1.0),
        ("not settled", 1.0),
    ],
)
def test_what_is_missing_is_no_success(what: str, value: float) -> None:
    assert suite.verdict(pd.Series(WORKED))[1]
    assert not suite.verdict(pd.Series({**WORKED, what: value}))[1]
