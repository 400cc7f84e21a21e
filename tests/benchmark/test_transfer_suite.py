"""The suite `transfer`: what is planned, what single transfers become, and a small sweep of real boards."""

from __future__ import annotations

import dataclasses
import io
import os
import re
from pathlib import Path

import pandas as pd
import pytest
from matplotlib import pyplot as plt
from rich.console import Console

from fastflight_benchmark import plot_benchmark_results
from fastflight_benchmark.options import Options
from fastflight_benchmark.suites.transfer import folders
from fastflight_benchmark.suites.transfer import plots as transfer_plots
from fastflight_benchmark.suites.transfer import report as transfer_report
from fastflight_benchmark.suites.transfer import suite as transfer
from fastflight_benchmark.suites.transfer import summary as transfer_summary
from fastflight_benchmark.suites.transfer.contents import DOWNLOAD, KINDS, UPLOAD, make
from fastflight_benchmark.suites.transfer.summary import RAW_COLUMNS, STEADY
from tests.benchmark.test_plots import DESCRIPTION

needs_terminals = pytest.mark.skipif(not hasattr(os, "openpty"), reason="this system has no pseudo-terminals")


def options(path: Path) -> Options:
    return Options("unused", True, 1, path, Console(file=io.StringIO(), width=200))


def said(options: Options) -> str:
    assert isinstance(options.console.file, io.StringIO)
    return options.console.file.getvalue()


@pytest.mark.parametrize("kind", KINDS)
def test_contents_are_of_the_size_asked_for_and_always_the_same(kind: str) -> None:
    assert len(make(kind, 12_345)) == 12_345  # type: ignore[arg-type]
    assert make(kind, 5_000) == make(kind, 12_345)[:5_000]  # type: ignore[arg-type]


def test_every_cell_is_planned_and_those_not_run_say_why() -> None:
    scope = transfer.FULL
    cells = transfer.plan(scope, tunable=False)

    assert len(cells) == len(scope.lines) * len(scope.sizes) * len(scope.contents) + len(scope.chunks) * len(
        scope.drains
    ) * len(scope.tuned)
    skipped = {(cell.line, cell.content, cell.size): cell.skipped for cell in cells if cell.skipped and not cell.chunk}
    assert skipped[115_200, "random", 1_000_000] == "a transfer takes 87 s on this line"
    assert skipped[115_200, "csv", 100_000] == "takes long on this line: random bytes only"
    assert (115_200, "random", 100_000) not in skipped
    assert not any(line == transfer.WITHOUT_PACE for line, _, _ in skipped)
    assert all(cell.skipped == transfer.NOT_BY_OPTION for cell in cells if cell.chunk)


def test_a_full_run_takes_a_quarter_of_an_hour_at_most() -> None:
    cells = [cell for cell in transfer.plan(transfer.FULL, tunable=True) if not cell.skipped]
    often = sum(cell.seconds for cell in cells if not cell.once)
    once = sum(cell.seconds for cell in cells if cell.once)

    assert 3 * often + once < 15 * 60


def raw(rows: list[dict[str, object]]) -> pd.DataFrame:
    common = {
        "kind": STEADY,
        "line": 115_200,
        "content": "random",
        "size": 10_000,
        "chunk": 0,
        "drain": 0,
        "operation": UPLOAD,
        "round": 1,
        "limit_bytes_per_second": 11_520.0,
        "round_trip_seconds": 0.001,
        "error": "",
    }
    return pd.DataFrame([common | row for row in rows], columns=RAW_COLUMNS)


def test_ratios_are_of_transfers_that_stood_next_to_each_other() -> None:
    # The machine was half as fast in the second run: both of a pair saw it.
    made = raw(
        [
            {"path": path, "run": run, "seconds": seconds * run}
            for run in (1, 2)
            for path, seconds in (("sync", 1.0), ("async", 0.8), ("mpremote", 4.0))
        ]
    )
    rows = transfer_summary.aggregate(made, []).set_index("path")

    assert list(rows.index) == ["sync", "async"]
    assert rows["vs_mpremote"].tolist() == pytest.approx([4.0, 5.0])
    assert rows.loc["async", "async_to_sync"] == pytest.approx(1.25)
    assert rows.loc["sync", "seconds"] == pytest.approx(1.5)
    assert rows.loc["sync", "of_limit"] == pytest.approx(10_000 / 1.5 / 11_520)
    assert rows["vs_mpremote_pty"].isna().all()


def test_a_failed_transfer_counts_and_carries_no_time() -> None:
    made = raw(
        [
            {"path": "sync", "run": 1, "seconds": 1.0},
            {"path": "sync", "run": 2, "seconds": float("nan"), "error": "lost"},
        ]
    )
    [row] = transfer_summary.aggregate(made, []).to_dict("records")

    assert (row["verified"], row["seconds"], row["runs"]) == ("1/2", 1.0, 2)


def test_what_was_not_run_stands_in_the_result() -> None:
    cell = transfer.Cell(115_200, "random", 1_000_000, skipped="too long")
    rows = transfer_summary.aggregate(raw([]), [dataclasses.asdict(cell)])

    assert set(zip(rows["operation"], rows["path"], strict=True)) == {
        (operation, path) for operation in (UPLOAD, DOWNLOAD) for path in ("sync", "async")
    }
    assert set(rows["status"]) == {"not run: too long"}


def test_a_missed_target_is_said_as_plainly_as_one_that_is_met() -> None:
    made = raw([{"path": path, "run": 1, "seconds": 1.0} for path in ("sync", "async", "mpremote")])
    console = Console(file=io.StringIO(), width=200)
    transfer_report.show(console, transfer_summary.aggregate(made, []), judged=True)

    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "10 KB random at 115200, against mpremote: 1.00 in the worst of 2 cells; the target is 3.0: missed" in text
    assert "async against sync: 1.00 in the worst of 1 cells; the target is 0.95: met" in text
    assert "1 KB at 115200, seconds: not measured" in text


@pytest.mark.parametrize("others", [[], [{"path": "async", "run": 1, "seconds": 0.5}]])
def test_a_target_is_missed_where_a_transfer_failed(others: list[dict[str, object]]) -> None:
    lost = {"path": "async", "run": 2, "seconds": float("nan"), "error": "lost"}
    made = raw([{"path": "sync", "run": run, "seconds": 0.9} for run in (1, 2)] + [lost, *others])
    console = Console(file=io.StringIO(), width=200)
    transfer_report.show(console, transfer_summary.aggregate(made, []), judged=True)

    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert re.search(r"of limit: 0.96 in the worst of . cells, and 1 with transfers that failed; .*: missed", text)


@pytest.mark.usefixtures("fonts")
def test_a_cell_that_failed_is_not_said_not_to_have_been_run() -> None:
    made = raw(
        [
            {"path": path, "run": 1, "size": size, "operation": operation, "seconds": seconds, "error": error}
            for path in ("sync", "async")
            for operation in (UPLOAD, DOWNLOAD)
            for size, seconds, error in ((1_000, 0.1, ""), (10_000, float("nan"), "lost"))
        ]
    )
    skipped = dataclasses.asdict(transfer.Cell(115_200, "random", 1_000_000, skipped="too long"))
    description = DESCRIPTION | {"suite": "transfer"}
    figure = transfer_plots.of_limit(transfer_summary.aggregate(made, [skipped]), "random", description)
    for axes in figure.axes:
        assert sorted(text.get_text() for text in axes.texts) == ["87 %", "failed", "not run"]
    plt.close(figure)


@needs_terminals
@pytest.mark.usefixtures("fonts")
def test_a_small_sweep_moves_every_byte_on_both_paths_and_by_mpremote(tmp_path: Path) -> None:
    scope = dataclasses.replace(
        transfer.QUICK,
        folders=(),
        lines=(3_000_000, transfer.WITHOUT_PACE),
        sizes=(1_000, 5_000),
        contents=("csv",),
        peers={transfer.WITHOUT_PACE: {"csv": (1_000,)}},
        tuned=(),
        longest_transfer_seconds=0.01,
    )
    path = tmp_path / "transfer.csv"
    run = options(path)

    assert transfer.run(run, scope) == 0

    result = pd.read_csv(path)
    ran = result[result["status"] == "run"]
    assert set(ran["path"]) == {"sync", "async"}
    assert set(ran["kind"]) == {"first", "steady"}
    assert all(text.split("/")[0] == text.split("/")[1] for text in ran["verified"])
    assert (ran["seconds"] > 0).all()
    assert (ran["limit_bytes_per_second"] > 0).all()
    compared = ran[ran["mpremote_seconds"].notna()]
    assert set(zip(compared["line"], compared["size"], strict=True)) == {(transfer.WITHOUT_PACE, 1_000)}
    left = result[result["status"] != "run"]
    assert set(zip(left["line"], left["size"], strict=True)) == {(3_000_000, 5_000)}
    assert "not run: a transfer takes 0 s on this line: 5 KB at 3000000" in said(run)

    drawn = plot_benchmark_results.draw(path, tmp_path)
    assert [file.name for file in drawn] == ["transfer_mpremote_without_pace.png", "transfer_of_limit_csv.png"]
    assert all(file.stat().st_size > 10_000 for file in drawn)
    assert not plt.get_fignums()


@needs_terminals
@pytest.mark.parametrize("tool", folders.TOOLS)
def test_each_tool_copies_a_folder_twice(tool: str) -> None:
    rows = list(folders.copies(tool, folders.Folder("2 x 3 kB", 2, 3000), transfer.WITHOUT_PACE, 1))
    assert [(row["time"], row["equal"], row["files"], row["error"]) for row in rows] == [
        (folders.FIRST_TIME, 2, 2, ""),
        (folders.UNCHANGED, 2, 2, ""),
    ]
    shown = io.StringIO()
    raw = pd.DataFrame(rows, columns=folders.COLUMNS)
    folders.show(Console(file=shown, width=200), raw, transfer_report.line_name)
    assert "no pace" in shown.getvalue() and "2 x 3 kB" in shown.getvalue()
