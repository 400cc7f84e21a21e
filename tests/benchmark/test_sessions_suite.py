"""The suite `sessions` with little of everything: processes, ended afterwards; every row counted; files and plots."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pyarrow as pa
import pytest
from rich.console import Console

from fastflight_benchmark import plot_benchmark_results
from fastflight_benchmark.live import measuring
from fastflight_benchmark.live.counting import JSON_SCHEMA, Rows, Traffic
from fastflight_benchmark.live.measuring import Cell
from fastflight_benchmark.suites import Options, sessions

SCOPE = sessions.Scope((), 20, 3, (), 0.3, 2, 0.0, 0.0, 1_000_000)


@pytest.mark.skipif(sys.platform == "win32", reason="the boards' process counts POSIX descriptors")
@pytest.mark.usefixtures("fonts")
def test_sessions_are_measured_saved_shown_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = psutil.Process().children(recursive=True)  # what multiprocessing keeps of other tests
    cells = [
        Cell("recorded", 20, 3, "async", recorded=True),
        Cell("full speed", 1, 2, "sync", bytes_per_second=300_000.0, format="bytes"),
    ]
    monkeypatch.setattr(sessions, "planned", lambda scope, number: [(cell, scope.seconds) for cell in cells])
    monkeypatch.setattr(measuring, "SETTLE_SECONDS", 0.0)
    path, screen = tmp_path / "sessions.csv", io.StringIO()

    assert sessions.run(Options("unused", True, 1, path, Console(file=screen, width=200)), SCOPE) == 0

    raw = pd.read_csv(tmp_path / "sessions_raw.csv")
    assert raw["error"].isna().all()
    assert (raw["received"] == raw["expected"]).all()
    assert (raw[["missing", "wrong", "gaps"]] == 0).all(axis=None)
    kept = raw[raw["recorded"]]
    assert (kept["kept_rows"] == kept["printed"]).all()
    assert (kept["kept_wrong"] == 0).all()
    assert "Live sessions" in screen.getvalue()
    assert [child for child in psutil.Process().children(recursive=True) if child not in before] == []
    drawn = plot_benchmark_results.draw(path, tmp_path)
    assert [picture.name for picture in drawn] == ["sessions_latency.png", "sessions_cost.png"]


def test_the_plan_of_a_run_has_every_part_and_stalls_once() -> None:
    first, second = ([cell for cell, _ in sessions.planned(sessions.FULL_SCOPE, number)] for number in (1, 2))
    assert {cell.part for cell in first} == {"boards", "recorded", "full speed", "readers", "stalled"}
    assert [cell.mode for cell in first[:2]] == [cell.mode for cell in second[:2]][::-1]
    assert not any(cell.stall_seconds for cell in second)


def rows(*numbers: int, board: int = 7) -> pa.RecordBatch:
    values = [{"board": board, "n": number, "ns": 1000} for number in numbers]
    return pa.RecordBatch.from_pylist(values, schema=pa.schema([(name, pa.int64()) for name in JSON_SCHEMA]))


def chunks(*numbers: int) -> pa.RecordBatch:
    schema = pa.schema([("seq", pa.uint64()), ("data", pa.binary())])
    return pa.RecordBatch.from_pylist([{"seq": n, "data": b'{"ns": 5}\n'} for n in numbers], schema=schema)


def gap(first: int, last: int) -> Mapping[str, Any]:
    return {"gap": {"first": first, "last": last}}


@pytest.mark.parametrize(
    ("batches", "count", "lost", "wrong"),
    [
        ([(rows(3, 4), {}), (rows(5), {})], 3, 0, 0),
        ([(rows(3, 4), {}), (rows(6), {})], 3, 0, 1),
        ([(rows(3, 4), {}), (rows(4), {})], 3, 0, 1),
        ([(rows(3), {}), (rows(9), gap(0, 0))], 2, 5, 0),
        ([(rows(3, board=8), {})], 1, 0, 1),
    ],
)
def test_rows_that_are_lost_or_come_twice_or_are_anothers_are_seen(
    batches: Any, count: int, lost: int, wrong: int
) -> None:
    counted = Rows(7)
    for batch, note in batches:
        counted.take(batch, note, 2000)
    assert (counted.count, counted.lost, counted.wrong) == (count, lost, wrong)


@pytest.mark.parametrize(
    ("batches", "count", "lost", "wrong"),
    [
        ([(chunks(3, 4), {}), (chunks(5), {})], 3, 0, 0),
        ([(chunks(3, 4), {}), (chunks(6), {})], 3, 0, 1),
        ([(chunks(3), {}), (chunks(9), gap(4, 8))], 2, 5, 0),
        ([(chunks(3), {}), (chunks(9), gap(5, 8))], 2, 4, 1),
        ([(chunks(3), {}), (chunks(10), gap(4, 8))], 2, 5, 1),
        ([(chunks(), gap(0, 2)), (chunks(3), {})], 1, 3, 0),
    ],
)
def test_a_gap_must_be_told_to_the_chunk(batches: Any, count: int, lost: int, wrong: int) -> None:
    counted = Traffic(0)
    for batch, note in batches:
        counted.take(batch, note, 2000)
    assert (counted.count, counted.lost, counted.wrong) == (count, lost, wrong)
    assert counted.bytes == 10 * count
