"""One quick run of each suite, with a few cells: it measures its contenders, and nothing fails."""

from __future__ import annotations

import importlib
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

import adbc_driver_flightsql.dbapi as adbc
import adbc_driver_manager
import duckdb
import pytest
from rich.console import Console

from fastflight_benchmark import (
    machine,
    performance_page,
    processes,
    report,
    result,
)
from fastflight_benchmark.engine import Bench, Suite
from fastflight_benchmark.run_benchmark import SUITES
from fastflight_benchmark.suites import source
from tests.support.commands import forking

NOWHERE = "grpc://127.0.0.1:1"
SWEEP = {"rows": (1_000,), "clients": (2,), "delays": (0,), "total_rows": 2_000}
# By suite: its sizes, the chosen cells, and contenders that must have figures.
RUNS: Mapping[str, tuple[Mapping[str, str], Mapping[str, Sequence[str]], Sequence[str]]] = {
    "flight": (
        {"files": "100000", "rounds_alone": "1"},
        {"server": ("bare", "sync", "async", "limit")},
        ("bare", "sync", "async", "limit"),
    ),
    "requests": (
        {"connections": "1", "seconds": "0.1"},
        {"server": ("bare", "async"), "load": ("flight-client",)},
        ("bare", "async"),
    ),
    "transfer": (
        {"lines": "921600", "sizes": "1000"},
        {"part": ("file", "first transfer"), "content": ("random",)},
        ("sync", "async", "line", "mpremote"),
    ),
    "sessions": (
        {"boards": "2", "readers": "2", "recorded": "2", "sampled": "1", "seconds": "0.3", "log_bytes": "1000000"},
        {"part": ("recorded", "log")},
        ("async", "recording log"),
    ),
    "bridge": (
        {"round_trips": "20", "terminal_bytes": "100000", "socket_bytes": "1000000"},
        {"part": ("round trip",), "server": ("device alone", "fastflight raw")},
        ("device alone", "fastflight raw"),
    ),
    "relay": ({"sizes": "1", "chunks": "64", "reads": "16"}, {}, ("raw", "ours", "library")),
    "http": ({"rows": "20000"}, {"work": ("table",)}, ("gateway", "flight")),
    "sql": ({"rows": "2000"}, {"task": ("aggregate",)}, ("sql", "DuckDB")),
    "cluster": (
        {"servers": "2", "watched": "4", "recorded": "0", "silent": "0", "viewers": "2", "seconds": "1"},
        {"part": ("requests",)},
        ("cluster of 2",),
    ),
    "commands": ({"tasks": "1"}, {}, ("fastflight with a server", "fastflight without a server", "mpremote")),
}

# Two suites have plots of their own, and all others bars.
DRAWN = ("flight", "requests", "sql")


def quick(suite: Suite, settings: Mapping[str, str], only: Mapping[str, Sequence[str]]) -> result.Result:
    chosen = {key: frozenset(values) for key, values in only.items()}
    bench = Bench(suite, Console(file=io.StringIO()), NOWHERE, True, 1, settings, chosen)
    bench.facts |= {"sweep": SWEEP, "own_sizes": False}
    suite.run(bench)
    return bench.result(machine.describe())


def test_each_suite_has_a_run() -> None:
    assert list(RUNS) == list(SUITES)


@pytest.fixture(scope="session")
def drawing() -> ModuleType:
    """What draws results. Not imported above: each of pytest's workers would load matplotlib, for a second."""
    return importlib.import_module("fastflight_benchmark.plot_benchmark_results")


@pytest.fixture(scope="session")
def queries() -> None:
    """Queries once: DuckDB and the driver of ADBC open descriptors when they are first used, and keep them."""
    with duckdb.connect() as local:
        local.execute("select 1").fetchall()
    with adbc.connect("grpc+tcp://127.0.0.1:1", autocommit=True) as connection, connection.cursor() as cursor:
        with pytest.raises(adbc_driver_manager.Error):
            cursor.execute("select 1")


@pytest.fixture(autouse=True, scope="module")
def _processes_start_at_once() -> Iterator[None]:
    with forking(processes):
        yield


@pytest.mark.parametrize("name", RUNS)
def test_a_suite_runs(name: str, tmp_path: Path, queries: None, drawing: ModuleType) -> None:
    settings, only, contenders = RUNS[name]
    found = quick(SUITES[name], settings, only)

    assert found.description["errors"] == []
    assert set(contenders) <= {row.contender for row in found.rows}
    assert all(value > 0 for row in found.rows for value in row.known if row.better == result.MORE)
    # The result is stored, read back, shown and drawn.
    result.save(tmp_path / "a.json", found)
    assert result.load(tmp_path / "a.json").rows == found.rows
    screen = io.StringIO()
    report.show(Console(file=screen, width=200), SUITES[name].title, found)
    assert all(contender in screen.getvalue() for contender in contenders)
    if name in DRAWN:
        drawn = drawing.draw(tmp_path / "a.json", tmp_path)
        assert drawn and all(path.stat().st_size > 10_000 for path in drawn)


def test_a_source_of_the_users_own_is_measured_beside_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(result.HERE)
    monkeypatch.syspath_prepend(str(result.HERE))
    found = quick(source.suite("mock_data_service:NUMBERS", '{"total_rows": 10, "rows_per_batch": 10}'), {}, {})

    assert found.description["errors"] == []
    assert {row.contender for row in found.of("rate")} == {"alone", "sync", "async"}


def test_no_legend_is_cut_off(drawing: ModuleType) -> None:
    for figure in drawing.plots.figures(performance_page.stored("requests")).values():
        figure.canvas.draw()
        assert figure.legends[0].get_window_extent().x1 <= figure.bbox.x1
        drawing.plt.close(figure)
