"""Computes the rows of a result from single requests: statistics, limits, ratios. Pure functions on frames.

`raw` is a frame of `RAW_COLUMNS`, one row per request. `error` is empty for a request with a correct answer.
Throughputs and limits are MiB/s. The columns are named `mbps`, as in other results of this kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from fastflight_benchmark.contenders import ASYNC, BARE, MODES, SYNC
from fastflight_benchmark.table import MIB

GIB = 1024 * MIB

# The columns of a cell. Requests with the same values are averaged.
CELL = ["rows_per_batch", "concurrent_requests", "delay_per_row"]
RAW_COLUMNS = [
    "variant",
    "total_rows",
    *CELL,
    "mode",
    "run",
    "request",
    "latency_seconds",
    "first_batch_seconds",
    "bytes",
    "messages",
    "run_throughput_mbps",
    "server_cpu_seconds",
    "reader_cpu_seconds",
    "run_seconds",
    "ceiling_mbps",
    "error",
]
COLUMNS = [
    *CELL,
    "mode",
    *(f"{statistic}_latency_seconds" for statistic in ("avg", "min", "max", "std")),
    *(f"{statistic}_throughput_mbps" for statistic in ("avg", "min", "max", "std")),
    "run_count",
    "success_rate",
    "avg_data_size_mb",
    "limit_mbps",
    "ceiling_mbps",
    "bare_mbps",
]
COMPARED = [
    *CELL,
    "sync_mbps",
    "async_mbps",
    "limit_mbps",
    "ceiling_mbps",
    "improvement",
    "noise",
    "sync_of_limit",
    "async_of_limit",
    "success_rate",
]
RATIO_CELL = ["variant", "total_rows", *CELL]
RATIO_COLUMNS = [
    *RATIO_CELL,
    "mode",
    "peer",
    "pairs",
    *(f"{statistic}_ratio" for statistic in ("median", "min", "max")),
]
SERVER_COLUMNS = [
    *RATIO_CELL,
    "mode",
    "runs",
    "throughput_mbps",
    "min_throughput_mbps",
    "max_throughput_mbps",
    "first_batch_seconds",
    "messages",
    "server_cpu_seconds_per_gib",
    "reader_cores",
]


def aggregate(raw: pd.DataFrame) -> pd.DataFrame:
    """Return a row of `COLUMNS` per cell and path of the default table.

    Latency is over all successful requests, throughput over runs. The standard deviation is that of a sample, and 0 for
    a single value.
    """
    table = raw[(raw["variant"] == "default") & raw["mode"].isin(MODES)]
    rows = []
    for key, group in table.groupby([*CELL, "mode"], sort=True):
        correct = group[group["error"] == ""]
        runs = group.drop_duplicates("run")
        cell = _named([*CELL, "mode"], key)
        ceiling = cell["concurrent_requests"] * group["ceiling_mbps"].iloc[0]
        bare = bare_mbps(raw, cell["rows_per_batch"], cell["concurrent_requests"])
        rows.append(
            cell
            | _statistics("latency_seconds", correct["latency_seconds"])
            | _statistics("throughput_mbps", runs["run_throughput_mbps"])
            | {
                "run_count": len(runs),
                "success_rate": len(correct) / len(group),
                "avg_data_size_mb": correct["bytes"].mean() / MIB,
                "limit_mbps": limit_mbps(ceiling, bare),
                "ceiling_mbps": ceiling,
                "bare_mbps": bare,
            }
        )
    return pd.DataFrame(rows, columns=COLUMNS)


def servers(raw: pd.DataFrame) -> pd.DataFrame:
    """Return the figures of each server in each cell: medians over its runs, or over all its requests.

    `messages` is the number of batches in an answer. It is lower than requested if a server joins batches.
    `reader_cores` is how many cores the readers kept busy. If it is the number of readers, the readers were the limit.
    """
    rows = []
    for key, group in raw[raw["error"] == ""].groupby([*RATIO_CELL, "mode"], sort=True):
        runs = group.assign(run_bytes=group.groupby("run")["bytes"].transform("sum")).drop_duplicates("run")
        rows.append(
            _named([*RATIO_CELL, "mode"], key)
            | {
                "runs": len(runs),
                "throughput_mbps": runs["run_throughput_mbps"].median(),
                "min_throughput_mbps": runs["run_throughput_mbps"].min(),
                "max_throughput_mbps": runs["run_throughput_mbps"].max(),
                "first_batch_seconds": group["first_batch_seconds"].median(),
                "messages": group["messages"].median(),
                "server_cpu_seconds_per_gib": runs["server_cpu_seconds"].sum() / (runs["run_bytes"].sum() / GIB),
                "reader_cores": (runs["reader_cpu_seconds"] / runs["run_seconds"]).median(),
            }
        )
    return pd.DataFrame(rows, columns=SERVER_COLUMNS)


def limit_mbps(ceiling: float, bare: float) -> float:
    """Return the source's own pace for all readers, or the throughput of bare pyarrow if that is lower.

    A server that joins batches may exceed bare pyarrow.
    """
    return min(ceiling, bare)


def bare_mbps(raw: pd.DataFrame, rows_per_batch: int, concurrent: int) -> float:
    """Return the median of the bare peer's runs of the default table without delay; NaN if there are none."""
    chosen = raw[
        (raw["mode"] == BARE)
        & (raw["variant"] == "default")
        & (raw["delay_per_row"] == 0)
        & (raw["rows_per_batch"] == rows_per_batch)
        & (raw["concurrent_requests"] == concurrent)
        & (raw["error"] == "")
    ]
    return float(chosen.drop_duplicates("run")["run_throughput_mbps"].median())


def ratios(raw: pd.DataFrame) -> pd.DataFrame:
    """Return the ratios of both paths to each peer, and of async to sync.

    The runs of the same round are close in time and form a pair. The result is the median of the ratios of pairs, not
    the ratio of medians, because drift that affects both runs of a pair cancels. A round with a failed run is not a
    pair.
    """
    rows = []
    for key, group in raw.groupby(RATIO_CELL, sort=True):
        whole = group.groupby(["run", "mode"])["error"].transform(lambda errors: (errors == "").all())
        by_run = (
            group[whole]
            .drop_duplicates(["mode", "run"])
            .pivot(index="run", columns="mode", values="run_throughput_mbps")
        )
        peers = [name for name in by_run.columns if name not in MODES]
        for mode, peer in [*((mode, peer) for peer in peers for mode in MODES), (ASYNC, SYNC)]:
            if not {mode, peer} <= set(by_run.columns):
                continue
            pairs = (by_run[mode] / by_run[peer]).dropna()
            if pairs.empty:
                continue
            rows.append(
                _named(RATIO_CELL, key)
                | {"mode": mode, "peer": peer, "pairs": len(pairs)}
                | {"median_ratio": pairs.median(), "min_ratio": pairs.min(), "max_ratio": pairs.max()}
            )
    return pd.DataFrame(rows, columns=RATIO_COLUMNS)


def compare(result: pd.DataFrame) -> pd.DataFrame:
    """Return a row per cell, async against sync: `improvement` and its `noise` in percent, and shares of the limit.

    `noise` is the standard deviation of the difference of one run of each, in percent of sync. The frame is empty if
    only one path was measured.
    """
    if not set(MODES) <= set(result["mode"]):
        return pd.DataFrame(columns=COMPARED)
    by_mode = result.pivot(index=CELL, columns="mode")
    average, spread = by_mode["avg_throughput_mbps"], by_mode["std_throughput_mbps"]
    limit = by_mode["limit_mbps"][SYNC]
    compared = pd.DataFrame(
        {
            "sync_mbps": average[SYNC],
            "async_mbps": average[ASYNC],
            "limit_mbps": limit,
            "ceiling_mbps": by_mode["ceiling_mbps"][SYNC],
            "improvement": 100 * (average[ASYNC] / average[SYNC] - 1),
            "noise": 100 * np.hypot(spread[SYNC], spread[ASYNC]) / average[SYNC],
            "sync_of_limit": 100 * average[SYNC] / limit,
            "async_of_limit": 100 * average[ASYNC] / limit,
            "success_rate": np.minimum(by_mode["success_rate"][SYNC], by_mode["success_rate"][ASYNC]),
        }
    )
    return compared.reset_index()[COMPARED]


def _named(columns: Sequence[str], key: Any) -> dict[str, Any]:
    """Return the values of a group's columns."""
    return dict(zip(columns, key, strict=True))


def _statistics(name: str, values: pd.Series[float]) -> dict[str, float]:
    return {
        f"avg_{name}": values.mean(),
        f"min_{name}": values.min(),
        f"max_{name}": values.max(),
        f"std_{name}": values.std() if len(values) > 1 else 0.0,
    }
