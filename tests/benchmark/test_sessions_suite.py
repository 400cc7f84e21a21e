"""The suite `sessions` with little of everything: processes, ended afterwards; every row counted; files and plots."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pyarrow as pa
import pytest
from matplotlib import pyplot as plt
from rich.console import Console

from fastflight_benchmark import plot_benchmark_results
from fastflight_benchmark.options import Options
from fastflight_benchmark.printing_boards import Printed
from fastflight_benchmark.suites.sessions import measuring
from fastflight_benchmark.suites.sessions import plots as sessions_plots
from fastflight_benchmark.suites.sessions import suite as sessions
from fastflight_benchmark.suites.sessions.counting import JSON_SCHEMA, Rows, Traffic
from fastflight_benchmark.suites.sessions.measuring import Cell
from fastflight_benchmark.suites.sessions.reading import Seen
from fastflight_benchmark.suites.sessions.report import targets
from fastflight_benchmark.suites.sessions.rows import frame, summarize
from tests.benchmark.test_plots import DESCRIPTION

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


def seen(count: int, first: int, following: int, *, gaps: int = 0, lost: int = 0, error: str = "") -> dict[str, Any]:
    counted = Seen(count, first, following, gaps, lost, 0, 0, 0, "async", error, ())
    return asdict(counted)


@pytest.mark.parametrize(
    ("format", "reader", "missing"),
    [
        # Of rows, the first one may be set aside, and no other.
        ("jsonl", seen(10, 0, 10), 0),
        ("jsonl", seen(9, 1, 10), 0),
        ("jsonl", seen(6, 4, 10), 3),
        ("jsonl", seen(8, 1, 9), 1),
        ("jsonl", seen(0, 0, 0), 10),
        # Of chunks, another reader knows how many there were.
        ("bytes", seen(4, 0, 7, gaps=1, lost=3), 0),
        ("bytes", seen(3, 0, 6, gaps=1, lost=3), 1),
        ("bytes", seen(3, 1, 7, gaps=1, lost=3), 1),
    ],
)
def test_what_is_missing_at_either_end_is_missing(format: str, reader: dict[str, Any], missing: int) -> None:
    cell = Cell("stalled", 1, 2, "async", format=format)
    printed = [Printed(rows=10)]
    ends = measuring._numbers(cell, printed, [reader, seen(7, 0, 7)])
    assert measuring._received(cell, printed, ends, [reader])["missing"] == missing


def measured(part: str, boards: int, **changed: Any) -> dict[str, Any]:
    cell = asdict(Cell(part, boards, 2, "async", recorded=part == "recorded"))
    counts = {"printed": 5, "kept_rows": 5, "kept_wrong": 0, "missing": 0, "wrong": 0, "gaps": 0, "told": 0}
    used = {"p50_ms": 1.0, "p99_ms": 2.0, "server_cores": 0.1, "server_mb": 100.0, "threads": 9}
    return cell | counts | used | {"run": 1, "error": ""} | changed


def test_a_target_of_a_cell_that_failed_is_missed() -> None:
    log = pd.DataFrame(columns=["server", "work", "content", "mbps"])
    for part, boards in (("recorded", 1000), ("boards", 100), ("stalled", 1)):
        good = frame([measured(part, boards)])
        bad = frame([measured(part, boards), measured(part, boards, error="cut")])
        told = [[target.met for target in targets(summarize(each), log)] for each in (good, bad)]
        assert told[0].count(True) == len(told[0]) - 2, part  # the log was not measured
        assert not any(told[1]) and len(told[1]) > 2


@pytest.mark.usefixtures("fonts")
def test_a_cell_that_failed_is_in_no_plot_and_its_absence_is_told() -> None:
    used = {"boards_cores": 0.1, "readers_cores": 0.1, "bytes_per_second": 0.0}
    cells = [measured("boards", 10, **used), measured("boards", 100, error="cut", **used)]
    for figure in sessions_plots.sessions(summarize(frame(cells)), DESCRIPTION).values():
        named = [label.get_text() for label in figure.axes[-1].get_xticklabels()]
        assert [name.split()[0] for name in named] == ["10"]
        assert "1 failed cells are left out" in figure.texts[-1].get_text().replace("\n", " ")
        plt.close(figure)


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
        ([(rows(3, 4), {}), (rows(4, 5), gap(0, 0))], 4, 0, 2),
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


def test_of_a_batch_of_bytes_the_oldest_row_is_timed_as_well() -> None:
    said = b"cut}\n" + b"".join(b'{"board": 7, "n": %d, "ns": %d}\n' % (n, 1000 + n) for n in range(50)) + b'{"boa'
    schema = pa.schema([("seq", pa.uint64()), ("data", pa.binary())])
    batch = pa.RecordBatch.from_pylist([{"seq": 0, "data": said[:900]}, {"seq": 1, "data": said[900:]}], schema=schema)
    assert Traffic(7).take(batch, {}, 2000).tolist() == [1000, 951]
    alone = pa.RecordBatch.from_pylist([{"seq": 0, "data": b"no row\n"}], schema=schema)
    assert Traffic(7).take(alone, {}, 2000).tolist() == []


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
