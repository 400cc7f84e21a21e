"""Results as the screen shows them, in a terminal of 80 columns."""

from __future__ import annotations

import io
import math

import pandas as pd
from rich.console import Console

from fastflight_benchmark import report
from fastflight_benchmark.suites.flight import report as flight_report
from fastflight_benchmark.suites.flight import summary


def on_screen(result: pd.DataFrame, ratios: pd.DataFrame, *, judged: bool = True) -> str:
    console = Console(file=io.StringIO(), width=80)
    flight_report.show(console, result, servers(), ratios, judged=judged)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def cells(async_mbps: float, spread: float) -> pd.DataFrame:
    rows = []
    for mode, throughput in (("sync", 1000.0), ("async", async_mbps)):
        row = dict.fromkeys(summary.COLUMNS, 1.0) | {"rows_per_batch": 10_000, "concurrent_requests": 10}
        row |= {"delay_per_row": 1e-6, "mode": mode, "limit_mbps": 1250.0}
        rows.append(row | {"avg_throughput_mbps": throughput, "std_throughput_mbps": spread})
    return pd.DataFrame(rows, columns=summary.COLUMNS)


def ratios(sync: float, async_: float) -> pd.DataFrame:
    cell = dict.fromkeys(summary.RATIO_COLUMNS, 1.0) | {"pairs": 9, "delay_per_row": 0.0}
    cell |= {"variant": "default", "total_rows": 1_000_000, "rows_per_batch": 10_000, "concurrent_requests": 1}
    return pd.DataFrame(
        [
            cell | {"mode": mode, "peer": peer, "median_ratio": ratio}
            for peer in ("bare", "fastflight-0.4-sync", "fastflight-0.4-async", "grpc.aio")
            for mode, ratio in (("sync", sync), ("async", async_))
        ]
    )


def servers() -> pd.DataFrame:
    row = dict.fromkeys(summary.SERVER_COLUMNS, 1.0) | {"variant": "complex", "rows_per_batch": 10_000}
    row |= {"concurrent_requests": 64, "delay_per_row": 1e-6, "mode": "fastflight-0.4-async", "throughput_mbps": 3456.0}
    return pd.DataFrame([row])


def test_a_difference_counts_only_beyond_the_noise() -> None:
    assert report.verdict(3.0, 2.0) == report.WIN
    assert report.verdict(-3.0, 2.0) == report.LOSS
    assert report.verdict(2.0, 2.0) == report.verdict(-1.0, 2.0) == report.NOISE
    assert report.verdict(math.nan, 2.0) == report.NOISE


def test_losses_are_counted_and_shown_like_wins() -> None:
    assert "-20.0 ± 1.4 %" in on_screen(cells(800.0, 10.0), ratios(1, 1))
    assert "0 better, 1 worse, 0 within" in on_screen(cells(800.0, 10.0), ratios(1, 1))
    assert "+20.0 ± 1.4 %" in on_screen(cells(1200.0, 10.0), ratios(1, 1))
    assert "1 better, 0 worse, 0 within" in on_screen(cells(1200.0, 10.0), ratios(1, 1))
    assert "0 better, 0 worse, 1 within" in on_screen(cells(990.0, 10.0), ratios(1, 1))


def test_a_missed_target_is_said_to_be_missed() -> None:
    shown = " ".join(on_screen(cells(1000.0, 10.0), ratios(0.96, 0.89)).split())

    assert "sync against bare pyarrow, 10,000 rows, one reader: 0.96; the target is 0.95: met" in shown
    assert "async against bare pyarrow, 10,000 rows, one reader: 0.89; the target is 0.95: missed" in shown
    assert "sync against bare pyarrow, 40 rows, one reader: not measured; the target is 0.95" in shown


def test_a_quick_run_is_not_judged() -> None:
    assert "target" not in on_screen(cells(1000.0, 10.0), ratios(0.91, 0.79), judged=False)


def test_no_figure_is_cut_in_80_columns() -> None:
    shown = on_screen(cells(1199.9, 333.3), ratios(0.91, 0.79))

    assert "…" not in shown
    assert "+20.0 ± 47.1 %" in shown
    assert "0.91 (1.00, 1.00)" in shown
    assert "fastflight-0.4-async" in shown
    assert "3456" in shown


def test_failures_are_shown_once_of_each_kind() -> None:
    console = Console(file=io.StringIO(), width=80)
    report.show_failures(console, pd.Series(["gone", "short", "gone"]))
    assert isinstance(console.file, io.StringIO)

    assert console.file.getvalue() == "3 requests failed:\n  2 x gone\n  1 x short\n"
