"""The arithmetic of a result, on requests made up for it."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest

from fastflight_benchmark.suites.flight import summary
from fastflight_benchmark.table import MIB

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
        "first_batch_seconds": 0.1,
        "bytes": TABLE_BYTES,
        "messages": 1000,
        "run_throughput_mbps": throughput,
        "server_cpu_seconds": 0.5,
        "reader_cpu_seconds": 0.25,
        "run_seconds": 1.0,
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
        "ceiling_mbps",
        "bare_mbps",
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
    assert summary.limit_mbps(3 * 190.7, 1500.0) == pytest.approx(572.1)
    assert summary.limit_mbps(10 * 190.7, 1500.0) == 1500.0
    assert summary.limit_mbps(math.inf, 1500.0) == 1500.0


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
            request("bare", 1, 10, **paced),
            request("sync", 1, 90, **paced),
            request("sync", 1, 90, rows_per_batch=5000, **paced),
        )
    ).set_index("rows_per_batch")

    assert result.loc[1000, "limit_mbps"] == 150.0
    assert result.loc[5000, "limit_mbps"] == 190.0


def test_other_variants_are_not_mixed_into_the_table() -> None:
    result = summary.aggregate(raw(request("sync", 1, 100), request("sync", 1, 900, variant="simple")))

    assert list(result["avg_throughput_mbps"]) == [100.0]


def median_of(ratios: pd.DataFrame, mode: str, peer: str) -> float:
    (found,) = ratios[(ratios["mode"] == mode) & (ratios["peer"] == peer)]["median_ratio"]
    return float(found)


def test_ratios_are_the_medians_of_pairs_and_drift_cancels() -> None:
    requests = []
    for run, speed in enumerate((100.0, 1000.0, 10.0), 1):  # the machine drifts; a run's ratios do not
        requests += [request("bare", run, speed), request("sync", run, 0.9 * speed), request("async", run, 0.8 * speed)]
    ratios = summary.ratios(raw(*requests))

    assert list(ratios.columns) == summary.RATIO_COLUMNS
    assert list(ratios["pairs"]) == [3, 3, 3]
    assert median_of(ratios, "sync", "bare") == pytest.approx(0.9)
    assert median_of(ratios, "async", "bare") == pytest.approx(0.8)
    assert median_of(ratios, "async", "sync") == pytest.approx(0.8 / 0.9)
    assert ratios["min_ratio"].to_list() == pytest.approx(ratios["max_ratio"].to_list())


def test_ratios_count_a_run_once_however_many_readers_it_has() -> None:
    requests = [
        request(mode, 1, speed, request=number, concurrent_requests=2)
        for mode, speed in (("bare", 100.0), ("sync", 50.0), ("async", 25.0))
        for number in (1, 2)
    ]
    ratios = summary.ratios(raw(*requests))

    assert set(ratios["pairs"]) == {1}
    assert (median_of(ratios, "sync", "bare"), median_of(ratios, "async", "bare")) == (0.5, 0.25)


def test_a_round_in_which_one_of_a_pair_failed_is_no_pair() -> None:
    failed = {"error": "gone", "bytes": 0}
    requests = [
        *(request(mode, 1, speed) for mode, speed in (("bare", 100.0), ("sync", 90.0))),
        *(request(mode, 2, speed) for mode, speed in (("bare", 100.0),)),
        request("sync", 2, 1.0),
        request("sync", 2, 1.0, request=2, **failed),
    ]
    ratios = summary.ratios(raw(*requests))

    assert (ratios["pairs"].to_list(), ratios["median_ratio"].to_list()) == ([1], [0.9])


def test_every_peer_has_its_ratios_where_it_was_measured() -> None:
    slow = {"delay_per_row": 1e-6}
    requests = [
        *(request(mode, 1, 100.0) for mode in ("bare", "sync", "async", "grpc.aio")),
        *(request(mode, 1, 100.0, **slow) for mode in ("sync", "async")),
    ]
    ratios = summary.ratios(raw(*requests))

    assert set(zip(ratios["delay_per_row"], ratios["mode"], ratios["peer"], strict=True)) == {
        *((0.0, mode, peer) for mode in ("sync", "async") for peer in ("bare", "grpc.aio")),
        (0.0, "async", "sync"),
        (1e-6, "async", "sync"),
    }


def test_servers_are_seen_by_what_they_sent_and_what_it_took() -> None:
    two = {"concurrent_requests": 2, "bytes": 256 * MIB, "messages": 40}
    row = summary.servers(
        raw(
            request("bare", 1, 300, first_batch_seconds=0.1, request=1, **two),
            request("bare", 1, 300, first_batch_seconds=0.3, request=2, **two),
            request("bare", 2, 100, first_batch_seconds=0.2, request=1, **two),
            request("bare", 2, 100, first_batch_seconds=0.2, request=2, **two),
        )
    ).iloc[0]

    assert (row["runs"], row["throughput_mbps"], row["min_throughput_mbps"]) == (2, 200.0, 100.0)
    assert row["first_batch_seconds"] == pytest.approx(0.2)
    assert row["messages"] == 40
    assert row["server_cpu_seconds_per_gib"] == 1.0  # half a second for each run of half a GiB
    assert row["reader_cores"] == 0.25


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
