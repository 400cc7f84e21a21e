"""The plan of the suite `flight`, and the suite from end to end with a small table."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from fastflight.client import FastFlightClient
from fastflight.service.requests import Mock
from fastflight_benchmark import output, plot_benchmark_results
from fastflight_benchmark.contenders import AIO, BARE, MODES
from fastflight_benchmark.options import Options
from fastflight_benchmark.peers.running import Served
from fastflight_benchmark.run_benchmark import (
    CLIENTS,
    DELAYS,
    QUICK_CLIENTS,
    QUICK_ROWS,
    QUICK_TOTAL_ROWS,
    ROWS,
    TOTAL_ROWS,
    sweep,
)
from fastflight_benchmark.suites.flight import suite as flight
from fastflight_benchmark.suites.flight import summary
from fastflight_benchmark.table import BarePeer, WrongPath
from tests.support.servers import FREE_PORT, serving

# Nothing can listen at port 1 without being the system's administrator.
NO_SERVER = "grpc://127.0.0.1:1"
TINY = flight.Scope(
    variants={"simple": 200, "complex": 200},
    peers=(BARE, AIO),
    peer_cells=[(50, 2)],
    rounds_alone=1,
)
TINY_CELLS = list(sweep((50, 100), (1, 2), (0, 1), 200))
FULL_CELLS = list(sweep(ROWS, CLIENTS, DELAYS, TOTAL_ROWS))
QUICK_CELLS = list(sweep(QUICK_ROWS, QUICK_CLIENTS, DELAYS, QUICK_TOTAL_ROWS))


def options(server: str, path: Path) -> Options:
    return Options(server, True, 1, path, Console(file=io.StringIO(), width=200))


def screen(given: Options) -> str:
    assert isinstance(given.console.file, io.StringIO)
    return given.console.file.getvalue()


def all_runs(cells: Sequence[flight.Cell], scope: flight.Scope, runs: int) -> list[flight.Step]:
    return [step for run in range(1, runs + 1) for step in flight.plan(cells, scope, run)]


def modes(steps: list[flight.Step]) -> list[str]:
    return [step.mode for step in steps]


def test_those_compared_take_turns_in_an_order_that_turns_around() -> None:
    steps = [s for s in all_runs(FULL_CELLS, flight.FULL, 3) if s.run and s.request.rows_per_batch == 1000]
    paced = [s for s in steps if s.request.delay_per_row == 1e-6 and s.concurrent == 3]
    beside = [s for s in steps if s.request.delay_per_row == 1e-6 and s.concurrent == 1]
    crowd = [s for s in steps if not s.request.delay_per_row and s.concurrent == 3]
    alone = [s for s in steps if s.request.variant == "simple"]
    everyone = ["bare", "sync", "async", "fastflight-0.4-sync", "fastflight-0.4-async", "grpc.aio"]

    assert modes(paced) == ["sync", "async", "async", "sync", "sync", "async"]
    assert [s.run for s in paced] == [1, 1, 2, 2, 3, 3]
    assert modes(beside[:10]) == [*everyone[:5], *reversed(everyone[:5])]
    assert modes(crowd[:12]) == [*everyone, *reversed(everyone)]
    assert modes(alone[:6]) == ["bare", "sync", "async", "async", "sync", "bare"]
    assert [s.run for s in alone] == [round for round in range(1, 3 * flight.ROUNDS_ALONE + 1) for _ in range(3)]


def test_each_cell_is_warmed_up_shortly_and_measured_as_often_as_asked() -> None:
    steps = all_runs(FULL_CELLS, flight.FULL, 3)
    paced = Counter(
        (s.request.rows_per_batch, s.concurrent, s.request.delay_per_row, s.mode)
        for s in steps
        if s.run and s.request.delay_per_row and s.mode in MODES
    )

    assert len(paced) == 4 * 6 * 2 * 2
    assert set(paced.values()) == {3}
    assert all(s.seconds < 1.5 for s in steps if not s.run)


def test_many_readers_and_small_batches_read_less_but_all_that_are_compared_read_the_same() -> None:
    tables = {
        (s.request.variant, s.request.rows_per_batch, s.concurrent, s.request.delay_per_row): set()
        for s in all_runs(FULL_CELLS, flight.FULL, 1)
    }
    for s in all_runs(FULL_CELLS, flight.FULL, 1):
        if s.run:
            key = (s.request.variant, s.request.rows_per_batch, s.concurrent, s.request.delay_per_row)
            tables[key].add(s.request.total_rows)
            assert s.request.total_rows >= s.request.rows_per_batch

    assert all(len(rows) == 1 for rows in tables.values())
    assert tables["default", 10_000, 1, 1e-6] == tables["default", 1_000, 10, 1e-6] == {1_000_000}
    assert tables["default", 10_000, 64, 1e-6] == {150_000}
    assert tables["default", 40, 1, 0.0] == {40 * flight.MOST_BATCHES}


def test_all_batch_sizes_and_readers_of_the_sweep_have_a_limit() -> None:
    for cells, scope in ((FULL_CELLS, flight.FULL), (QUICK_CELLS, flight.QUICK)):
        bare = {
            (s.request.rows_per_batch, s.concurrent)
            for s in flight.plan(cells, scope, 1)
            if s.mode == BARE and s.run and not s.request.delay_per_row
        }
        assert bare >= {(cell.rows_per_batch, cell.clients) for cell in cells}


def test_the_full_run_takes_less_than_twenty_minutes_and_the_quick_one_less_than_a_minute() -> None:
    assert sum(step.seconds for step in all_runs(FULL_CELLS, flight.FULL, 3)) < 20 * 60
    assert sum(step.seconds for step in all_runs(QUICK_CELLS, flight.QUICK, 1)) < 60


@pytest.mark.usefixtures("fonts")
def test_a_run_writes_its_files_and_its_plots_and_leaves_the_named_server_running(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "tiny.csv"
    output.prepare(path)
    with serving() as server:
        given = options(server.location, path)
        assert flight.run(given, TINY_CELLS, TINY) == 0
        with FastFlightClient(server.location) as client:
            assert client.read_request(Mock(total_rows=1)).to_arrow().num_rows == 1

    result, raw, ratios = (pd.read_csv(p) for p in (path, output.beside(path, "raw"), output.beside(path, "ratios")))
    assert list(result.columns) == summary.COLUMNS
    assert len(result) == 2 * 2 * 2 * 2  # batch sizes, readers, delays, paths
    assert set(result["success_rate"]) == {1.0}
    assert np.allclose(result["avg_data_size_mb"], 200 * 50 * 4 / 2**20)
    assert set(raw["mode"]) == {"sync", "async", "bare", "grpc.aio"}
    assert list(ratios.columns) == summary.RATIO_COLUMNS
    assert set(ratios["variant"]) == {"default", "simple", "complex"}
    assert f"using the server that answers at {server.location}" in screen(given)
    assert set(json.loads(output.description_of(path).read_text())["machine"]) >= {"cpu", "cores", "pyarrow", "date"}

    plotted = plot_benchmark_results.draw(path, tmp_path / "plots")
    assert [p.name for p in plotted] == [
        "tiny_heatmap_0us.png",
        "tiny_heatmap_1us.png",
        "tiny_throughput.png",
        "tiny_peers.png",
        "tiny_first_batch.png",
    ]
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in plotted)


def test_where_no_server_answers_one_is_started_and_the_run_says_so(tmp_path: Path) -> None:
    given = options(NO_SERVER, tmp_path / "tiny.csv")

    assert flight.run(given, TINY_CELLS, TINY) == 0
    assert f"no server answers at {NO_SERVER}: starting one" in screen(given)
    assert f"fastflight at {NO_SERVER}" not in screen(given)


def test_failed_requests_are_counted_and_do_not_end_the_run() -> None:
    steps = [flight.Step(Mock(total_rows=10), "sync", 2, run) for run in (0, 1)]
    raw = pd.DataFrame(list(flight.measure(steps, {"sync": Served(NO_SERVER)})))

    assert list(raw["run"]) == [1, 1]
    assert raw["error"].str.startswith("FlightUnavailableError").all()
    assert summary.aggregate(raw)["success_rate"].tolist() == [0.0]


def test_own_sizes_are_read_from_all_peers_and_judged_by_nothing(tmp_path: Path) -> None:
    given = options(NO_SERVER, tmp_path / "own.csv")
    cells = list(sweep((70,), (2,), (5,), 140))

    assert flight.run(given, cells, TINY, own_sizes=True) == 0
    raw = pd.read_csv(output.beside(given.output, "raw"))
    assert set(raw["rows_per_batch"]) == {70} and set(raw["delay_per_row"]) == {5e-6}
    assert set(raw["total_rows"]) == {140} and set(raw["mode"]) == {"sync", "async", "bare"}
    assert "the target is" not in screen(given)
    assert json.loads(output.description_of(given.output).read_text())["sweep"] == {
        "rows_per_batch": [70],
        "clients": [2],
        "delay_us": [5],
        "total_rows": [140],
    }


def test_a_server_that_takes_another_path_ends_the_run() -> None:
    # The bare peer names no path at all.
    step = flight.Step(Mock(total_rows=10), "async", 1, 0)
    with BarePeer(FREE_PORT) as peer, pytest.raises(WrongPath):
        list(flight.measure([step], {"async": Served(f"grpc://127.0.0.1:{peer.port}")}))
