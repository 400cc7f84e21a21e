"""The arithmetic of a result, on requests made up for it."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest

from fastflight_benchmark import summary
from fastflight_benchmark.mock_data_service import MIB

TABLE_BYTES = 200 * MIB


def request(mode: str, run: int, throughput: float, **other: Any) -> dict[str, Any]:
    given = {
        "variant": "default",
        "total_rows": 1_000_000,
        "rows_per_batch": 1000,
        "concurrent_requests": 1,
        "delay_per_row": 0.0,
        "mode": mode,
        "run": run,
        "request": 1,
        "latency_seconds": 1.0,
        "bytes": TABLE_BYTES,
        "run_throughput_mbps": throughput,
        "ceiling_mbps": math.inf,
        "error": "",
    }
    return given | other


def raw(*requests: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(list(requests), columns=summary.RAW_COLUMNS)


def test_columns_are_those_that_are_promised() -> None:
    result = summary.aggregate(raw(request("bare", 1, 100), request("sync", 1, 90), request("async", 1, 80)))

    assert list(result.columns) == [
        "rows_per_batch",
        "concurrent_requests",
        "delay_per_row",
        "mode",
        "avg_latency_seconds",
        "min_latency_seconds",
        "max_latency_seconds",
        "std_latency_seconds",
        "avg_throughput_mbps",
        "min_throughput_mbps",
        "max_throughput_mbps",
        "std_throughput_mbps",
        "run_count",
        "success_rate",
        "avg_data_size_mb",
        "limit_mbps",
    ]
    assert list(result["mode"]) == ["async", "sync"]


def test_latency_is_over_requests_and_throughput_over_runs() -> None:
    two = {"concurrent_requests": 2}
    result = summary.aggregate(
        raw(
            request("sync", 1, 300, latency_seconds=1.0, request=1, **two),
            request("sync", 1, 300, latency_seconds=2.0, request=2, **two),
            request("sync", 2, 100, latency_seconds=3.0, request=1, **two),
            request("sync", 2, 100, latency_seconds=6.0, request=2, **two),
        )
    ).iloc[0]

    assert result["avg_latency_seconds"] == 3.0
    assert (result["min_latency_seconds"], result["max_latency_seconds"]) == (1.0, 6.0)
    assert result["std_latency_seconds"] == pytest.approx(math.sqrt((4 + 1 + 0 + 9) / 3))
    assert result["avg_throughput_mbps"] == 200.0
    assert (result["min_throughput_mbps"], result["max_throughput_mbps"]) == (100.0, 300.0)
    assert result["std_throughput_mbps"] == pytest.approx(math.sqrt(2 * 100.0**2))
    assert result["run_count"] == 2
    assert result["avg_data_size_mb"] == 200.0


def test_a_single_run_deviates_by_nothing() -> None:
    result = summary.aggregate(raw(request("sync", 1, 300))).iloc[0]

    assert (result["std_latency_seconds"], result["std_throughput_mbps"]) == (0.0, 0.0)


def test_failures_lower_the_success_rate_and_have_no_latency() -> None:
    failed = {"error": "DataError: 999 rows came of 1000", "bytes": 0, "latency_seconds": 0.001}
    result = summary.aggregate(
        raw(
            request("sync", 1, 200, latency_seconds=2.0),
            request("sync", 1, 200, request=2, **failed),
            request("sync", 2, 200, latency_seconds=4.0),
            request("sync", 2, 200, request=2, **failed),
        )
    ).iloc[0]

    assert result["success_rate"] == 0.5
    assert result["avg_latency_seconds"] == 3.0
    assert result["avg_data_size_mb"] == 200.0


def test_a_cell_where_all_failed_is_a_row_without_latency() -> None:
    result = summary.aggregate(raw(request("sync", 1, 0.0, error="gone", bytes=0))).iloc[0]

    assert result["success_rate"] == 0.0
    assert math.isnan(result["avg_latency_seconds"])
    assert result["avg_throughput_mbps"] == 0.0


def test_the_limit_is_the_lower_of_the_sources_pace_and_bare_pyarrow() -> None:
    assert summary.limit_mbps(190.7, 3, 1500.0) == pytest.approx(572.1)
    assert summary.limit_mbps(190.7, 10, 1500.0) == 1500.0
    assert summary.limit_mbps(math.inf, 1, 1500.0) == 1500.0


def test_the_limit_of_a_delayed_cell_comes_from_the_bare_runs_of_its_size_and_readers() -> None:
    paced = {"delay_per_row": 1e-6, "ceiling_mbps": 190.0}
    result = summary.aggregate(
        raw(
            request("bare", 1, 100),
            request("bare", 2, 150),
            request("bare", 3, 900),
            request("bare", 1, 5000, rows_per_batch=5000),
            request("bare", 1, 6000, concurrent_requests=3),
            request("bare", 1, 7000, variant="simple"),
            request("sync", 1, 90, **paced),
            request("sync", 1, 90, rows_per_batch=5000, **paced),
        )
    ).set_index("rows_per_batch")

    assert result.loc[1000, "limit_mbps"] == 150.0
    assert result.loc[5000, "limit_mbps"] == 190.0


def test_other_variants_are_not_mixed_into_the_table() -> None:
    result = summary.aggregate(raw(request("sync", 1, 100), request("sync", 1, 900, variant="simple")))

    assert list(result["avg_throughput_mbps"]) == [100.0]


def test_ratios_are_the_medians_of_pairs_and_drift_cancels() -> None:
    requests = []
    for run, speed in enumerate((100.0, 1000.0, 10.0), 1):  # the machine drifts; a run's ratios do not
        requests += [request("bare", run, speed), request("sync", run, 0.9 * speed), request("async", run, 0.8 * speed)]
    row = summary.ratios(raw(*requests)).iloc[0]

    assert list(summary.ratios(raw(*requests)).columns) == summary.RATIO_COLUMNS
    assert row["pairs"] == 3
    assert row["median_sync_to_bare"] == row["min_sync_to_bare"] == pytest.approx(0.9)
    assert row["median_async_to_bare"] == row["max_async_to_bare"] == pytest.approx(0.8)
    assert row["median_async_to_sync"] == pytest.approx(0.8 / 0.9)
    assert row["median_bare_mbps"] == 100.0


def test_ratios_count_a_run_once_however_many_readers_it_has() -> None:
    requests = [
        request(mode, 1, speed, request=number, concurrent_requests=2)
        for mode, speed in (("bare", 100.0), ("sync", 50.0), ("async", 25.0))
        for number in (1, 2)
    ]
    row = summary.ratios(raw(*requests)).iloc[0]

    assert (row["pairs"], row["median_sync_to_bare"], row["median_async_to_bare"]) == (1, 0.5, 0.25)


def test_delayed_runs_have_no_ratio() -> None:
    requests = [request(mode, 1, 100.0, delay_per_row=1e-6) for mode in ("bare", "sync", "async")]

    assert summary.ratios(raw(*requests)).empty


def test_compare_says_by_how_much_async_wins_or_loses_and_what_the_noise_is() -> None:
    result = summary.aggregate(
        raw(
            *(request("bare", run, 200.0) for run in (1, 2)),
            *(request("sync", run, speed) for run, speed in ((1, 97.0), (2, 103.0))),
            *(request("async", run, speed) for run, speed in ((1, 76.0), (2, 84.0))),
        )
    )
    cell = summary.compare(result).iloc[0]

    assert cell["improvement"] == pytest.approx(-20.0)
    assert cell["noise"] == pytest.approx(math.hypot(math.sqrt(2) * 3, math.sqrt(2) * 4))
    assert (cell["sync_of_limit"], cell["async_of_limit"]) == (50.0, 40.0)
