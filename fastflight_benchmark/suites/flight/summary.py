"""From single requests to the rows of a result: statistics, limits, ratios. Pure: frames in, frames out.

`raw` is a frame of `RAW_COLUMNS`, one row per request. `error` is empty for a request whose answer was right.
Throughputs and limits are MiB/s; the columns keep the name `mbps` that results of this kind have elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from fastflight_benchmark.contenders import ASYNC, BARE, MODES, SYNC
from fastflight_benchmark.mock_data_service import MIB

GIB = 1024 * MIB

# A cell: what is the same for all requests that are averaged.
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
    """One row of `COLUMNS` per cell and path of the default table.

    Latency is over all requests that succeeded, throughput over runs. The standard deviation is that of a sample, 0
    for a single value.
    """
    table = raw[(raw["variant"] == "default") & raw["mode"].isin(MODES)]
    rows = []
    for key, group in table.groupby([*CELL, "mode"], sort=True):
        right = group[group["error"] == ""]
        runs = group.drop_duplicates("run")
        cell = _named([*CELL, "mode"], key)
        ceiling = cell["concurrent_requests"] * group["ceiling_mbps"].iloc[0]
        bare = bare_mbps(raw, cell["rows_per_batch"], cell["concurrent_requests"])
        rows.append(
            cell
            | _statistics("latency_seconds", right["latency_seconds"])
            | _statistics("throughput_mbps", runs["run_throughput_mbps"])
            | {
                "run_count": len(runs),
                "success_rate": len(right) / len(group),
                "avg_data_size_mb": right["bytes"].mean() / MIB,
                "limit_mbps": limit_mbps(ceiling, bare),
                "ceiling_mbps": ceiling,
                "bare_mbps": bare,
            }
        )
    return pd.DataFrame(rows, columns=COLUMNS)


def servers(raw: pd.DataFrame) -> pd.DataFrame:
    """What each of those measured did in each cell: medians over its runs, and of all its requests.

    `messages` are batches that came in an answer: fewer than were asked for where a server joins them. `reader_cores`
    is how many cores the readers kept busy: where that is as many as there are readers, it is they who were measured.
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
    """The source's own pace for all readers, or what bare pyarrow reached here, which who joins batches may exceed."""
    return min(ceiling, bare)


def bare_mbps(raw: pd.DataFrame, rows_per_batch: int, concurrent: int) -> float:
    """The median of the bare peer's runs of the default table without delay; NaN where it was not run."""
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
    """Both paths against each peer, and async against sync: runs of the same round, close in time, are pairs.

    The median of the pairs' ratios, not the ratio of medians: drift that both of a pair saw cancels. A round in which
    one of a pair failed is no pair.
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
    """One row per cell, async against sync: `improvement` and its `noise` in percent, and shares of the limit.

    `noise` is the standard deviation of the difference of one run of each, in percent of sync. Empty where only one of
    them was measured.
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
    """The values by which a group was made."""
    return dict(zip(columns, key, strict=True))


def _statistics(name: str, values: pd.Series[float]) -> dict[str, float]:
    return {
        f"avg_{name}": values.mean(),
        f"min_{name}": values.min(),
        f"max_{name}": values.max(),
        f"std_{name}": values.std() if len(values) > 1 else 0.0,
    }
