"""The suite `http`: what wrk prints is understood, ratios are those of pairs, and a small run works."""

from __future__ import annotations

import io
import math
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from fastflight.errors import DataError, TransportError
from fastflight_benchmark.options import Options
from fastflight_benchmark.suites.http import suite as http

WRK = """Running 1s test @ http://127.0.0.1:8000/devices
  1 threads and 50 connections
  Latency Distribution
     50%    2.06ms
     99%  950.00us
  59330 requests in 3.01s, 13.58MB read
Requests/sec:  19718.12
Transfer/sec:      4.51MB
"""


def test_what_wrk_prints_is_understood() -> None:
    assert http.parsed(WRK, "x") == http.Measured(19718.12, "answers/s", pytest.approx(0.95))


@pytest.mark.parametrize("line", ["  Non-2xx or 3xx responses: 12\n", "  Socket errors: connect 0, read 7\n"])
def test_answers_that_failed_are_no_measurement(line: str) -> None:
    with pytest.raises(TransportError, match="12|read 7"):
        http.parsed(WRK + line, "x")


def test_a_ratio_is_that_of_a_pair() -> None:
    common = {"work": http.SMALL, "unit": "answers/s", "error": ""}
    raw = pd.DataFrame(
        [
            common | {"contender": http.GATEWAY, "run": 1, "rate": 30.0, "p99_ms": 4.0},
            common | {"contender": http.FASTAPI, "run": 1, "rate": 10.0, "p99_ms": 9.0},
            common | {"contender": http.FASTAPI, "run": 2, "rate": 100.0, "p99_ms": 9.0},
            common | {"contender": http.GATEWAY, "run": 2, "rate": 500.0, "p99_ms": 6.0},
        ],
        columns=http.COLUMNS,
    )
    (row,) = http.ratios(raw).to_dict("records")
    assert (row["median_ratio"], row["min_ratio"], row["max_ratio"], row["pairs"]) == (4.0, 3.0, 5.0, 2)
    assert row["gateway_p99_ms"] == 5.0


def test_a_peer_that_answers_something_else_is_not_measured(tmp_path: Path) -> None:
    for name, said in (("ours", '{"devices": [1]}'), ("same", '{"devices":[1]}'), ("less", '{"devices":[]}')):
        (tmp_path / name).write_text(said)
    ours, same, less = ((tmp_path / name).as_uri() for name in ("ours", "same", "less"))
    http.refuse_other(ours, same)
    with pytest.raises(DataError, match="the peer answers"):
        http.refuse_other(ours, less)


def test_the_table_is_read_both_ways_and_a_missing_wrk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    screen, path = io.StringIO(), tmp_path / "http.csv"
    options = Options("unused", True, 1, path, Console(file=screen, width=200))
    assert http.run(options, http.Scope(seconds=1, rows=20_000, rounds=1)) == 0
    (row,) = pd.read_csv(path).to_dict("records")
    assert (row["work"], row["peer"], row["pairs"]) == (http.TABLE, http.FLIGHT, 1)
    assert row["median_ratio"] > 0 and math.isnan(row["gateway_p99_ms"])
    assert "wrk is not installed" in screen.getvalue()
