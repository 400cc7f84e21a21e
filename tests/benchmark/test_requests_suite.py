"""The suite `requests`: its plan, its arithmetic, its judgement, and a whole run of it with little load."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from fastflight.errors import DataError
from fastflight_benchmark import output, plot_benchmark_results, targets
from fastflight_benchmark.contenders import AIO, BARE, PARSING
from fastflight_benchmark.loading.pool import Calls, Loaders
from fastflight_benchmark.options import Options
from fastflight_benchmark.peers import environment
from fastflight_benchmark.peers.constant import ConstantServer
from fastflight_benchmark.peers.environment import Missing
from fastflight_benchmark.peers.running import Served
from fastflight_benchmark.selection import Selection
from fastflight_benchmark.suites.requests import report as requests_report
from fastflight_benchmark.suites.requests import suite as requests
from fastflight_benchmark.suites.requests import summary as requests_summary
from tests.support.servers import FREE_PORT, serving

TINY = requests.Scope(connections=(1,), seconds=0.02, peers=(BARE, PARSING, AIO))


def refuse(*_: object) -> Path:
    raise Missing("no ghz here")


def test_those_compared_take_turns_and_a_peer_is_asked_for_what_it_has() -> None:
    steps = [step for run in (1, 2) for step in requests.plan(requests.FULL, run)]
    cell = [s for s in steps if (s.load, s.connections) == (requests.GHZ, 16)]
    reads = [s for s in cell if s.operation == "do_get"]
    everyone = ["bare", "bare-parsing", "sync", "async", "fastflight-0.4-sync", "fastflight-0.4-async", "grpc.aio"]

    assert [s.mode for s in reads] == 2 * [*everyone, *reversed(everyone)]
    assert sorted({s.run for s in reads}) == [1, 2, 3, 4]
    infos = {s.mode for s in cell if s.operation == "get_flight_info"}
    assert infos == {"bare", "bare-parsing", "sync", "async", "grpc.aio"}
    assert {s.mode for s in cell if s.operation == "do_action"} == {"bare", "sync", "grpc.aio"}
    assert {s.connections for s in steps} == {1, 4, 16, 64}


STEP = requests.Step("do_get", requests.CLIENT, 4, "sync", 1)


def test_a_row_has_rates_and_percentiles_of_what_succeeded_and_cost_of_all() -> None:
    calls = Calls([0.001] * 98 + [0.009, 0.009], 0.5, Counter({"gone": 100}), cpu_seconds=0.25)
    row = requests.row(STEP, calls, server_cpu_seconds=0.02)

    assert (row["requests"], row["failed"], row["per_second"], row["error"]) == (100, 100, 200.0, "gone")
    assert (row["p50_ms"], row["load_cores"]) == (pytest.approx(1.0), 0.5)
    assert row["p99_ms"] == pytest.approx(9.0)
    assert row["server_cpu_us"] == pytest.approx(100.0)


def loaded(mode: str, run: int, rate: float, **other: Any) -> dict[str, Any]:
    calls = Calls([1 / rate] * 10, 10 / rate, Counter())
    return requests.row(requests.Step("do_get", "ghz", 4, mode, run), calls, 10e-4) | other


def test_ratios_are_of_pairs_and_a_load_in_which_one_failed_is_none() -> None:
    raw = pd.DataFrame(
        [
            *(loaded("bare", run, rate) for run, rate in ((1, 1000.0), (2, 100.0), (3, 4000.0))),
            *(loaded("sync", run, rate) for run, rate in ((1, 900.0), (2, 90.0), (3, 400.0))),
            loaded("async", 1, 500.0, failed=1),
            loaded("async", 2, 50.0),
        ]
    )
    ratios = requests_summary.ratios(raw).set_index(["mode", "peer"])

    assert ratios.loc[("sync", "bare"), ["pairs", "median_ratio", "min_ratio"]].tolist() == [3, 0.9, 0.1]
    assert ratios.loc[("sync", "bare"), "median_p99_ratio"] == pytest.approx(1 / 0.9)
    assert ratios.loc[("sync", "bare"), "median_cpu_ratio"] == 1.0
    assert ratios.loc[("async", "bare"), ["pairs", "median_ratio"]].tolist() == [1, 0.5]
    result = requests_summary.aggregate(raw).set_index("mode")
    assert result.loc["sync", ["runs", "per_second", "max_per_second"]].tolist() == [3, 400.0, 900.0]
    assert result.loc["async", "failed"] == 1


def test_the_worst_number_of_connections_is_judged() -> None:
    cell = {"operation": "do_get", "load": "ghz", "mode": "sync"}
    ratios = pd.DataFrame(
        [
            cell | {"peer": "bare-parsing", "connections": 1, "median_ratio": 1.1, "median_p99_ratio": 0.9},
            cell | {"peer": "bare-parsing", "connections": 64, "median_ratio": 0.84, "median_p99_ratio": 1.2},
            cell | {"peer": "bare", "connections": 16, "median_ratio": 0.6, "median_p99_ratio": 1.4},
        ]
    )
    rate, tail = targets.requests(ratios)

    assert (rate.reached, rate.met) == (0.84, False)
    assert (tail.reached, tail.met) == (1.4, False)
    assert str(rate).endswith("per second: 0.84; the target is 0.85: missed")


def test_a_load_in_which_all_failed_is_the_worst_and_not_left_out() -> None:
    raw = pd.DataFrame(
        [
            loaded(mode, run, 1000.0, connections=connections, failed=int((mode, connections) == ("sync", 64)))
            for mode in ("bare-parsing", "sync")
            for connections in (1, 64)
            for run in (1, 2)
        ]
    )
    ratios = requests_summary.ratios(raw)

    assert ratios.set_index("connections")["pairs"].to_dict() == {1: 2, 64: 0}
    assert [judged.met for judged in targets.requests(ratios)] == [False]


@pytest.mark.usefixtures("fonts")
def test_a_run_measures_all_that_is_there_and_names_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "ghz", refuse)
    path = tmp_path / "tiny.csv"
    screen = io.StringIO()
    with serving() as server:
        given = Options(server.location, False, 1, path, Console(file=screen, width=200))
        assert requests.run(given, TINY) == 0

    raw, ratios = pd.read_csv(output.beside(path, "raw")), pd.read_csv(output.beside(path, "ratios"))
    assert list(pd.read_csv(path).columns) == requests_summary.COLUMNS
    assert list(ratios.columns) == requests_summary.RATIO_COLUMNS
    assert (raw["requests"] > 0).all()
    assert raw["server_cpu_us"].isna().equals(raw["mode"].isin(["sync", "async"]))  # its process is not known
    assert "missing load ghz: no ghz here; only Flight clients in Python load the servers" in screen.getvalue()
    assert "do_get, sync, load by flight-client, against bare pyarrow that reads what is asked for" in screen.getvalue()
    assert json.loads(output.description_of(path).read_text())["missing"] == {"ghz": "no ghz here"}
    (plotted,) = plot_benchmark_results.draw(path, tmp_path)
    assert plotted.name == "tiny_rates.png"


def test_cells_can_be_chosen_and_what_is_not_needed_is_not_prepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "ghz", refuse)
    only = Selection.parse(["load=flight-client", "operation=do_action", "connections=1", "server=bare"])
    given = Options("grpc://127.0.0.1:1", True, 1, tmp_path / "tiny.csv", Console(file=io.StringIO()), only)

    steps = given.chosen(requests.plan(TINY, 1))

    assert steps == [requests.Step("do_action", "flight-client", 1, "bare", 1)]
    assert requests.prepared_load({step.load for step in steps}, lambda _: None) == (None, {})


def test_a_server_that_answers_something_else_is_not_measured() -> None:
    with ConstantServer(FREE_PORT) as server, Loaders(1) as loaders, pytest.raises(DataError, match="do_get of sync"):
        requests.measure(STEP, Served(f"grpc://127.0.0.1:{server.port}"), loaders, None, 0.02)


def test_no_figure_is_cut_in_80_columns() -> None:
    raw = pd.DataFrame([loaded(mode, 1, 1234.5) for mode in ("bare", "sync", "async", "fastflight-0.4-async")])
    raw[["operation", "load", "connections"]] = "get_flight_info", "flight-client", 64
    screen = io.StringIO()
    result, ratios = requests_summary.aggregate(raw), requests_summary.ratios(raw)
    requests_report.show(Console(file=screen, width=80), result, ratios, judged=True)

    assert "…" not in screen.getvalue()
    assert "fastflight-0.4-async" in screen.getvalue()
