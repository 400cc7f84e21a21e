"""From single requests to the rows of a result: statistics, limits, ratios. Pure: frames in, frames out.

`raw` is a frame of `RAW_COLUMNS`, one row per request. `error` is empty for a request whose answer was right.
Throughputs and limits are MiB/s; the columns keep the name `mbps` that results of this kind have elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from fastflight_benchmark.mock_data_service import BARE, MIB

SYNC, ASYNC = "sync", "async"
MODES = (SYNC, ASYNC)

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
    "bytes",
    "run_throughput_mbps",
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
]
RATIO_CELL = ["variant", "total_rows", "rows_per_batch", "concurrent_requests"]
RATIO_COLUMNS = [
    *RATIO_CELL,
    "pairs",
    *(f"{s}_{r}" for r in ("sync_to_bare", "async_to_bare", "async_to_sync") for s in ("median", "min", "max")),
    *(f"median_{mode}_mbps" for mode in (BARE, *MODES)),
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
        rows.append(
            cell
            | _statistics("latency_seconds", right["latency_seconds"])
            | _statistics("throughput_mbps", runs["run_throughput_mbps"])
            | {
                "run_count": len(runs),
                "success_rate": len(right) / len(group),
                "avg_data_size_mb": right["bytes"].mean() / MIB,
                "limit_mbps": limit_mbps(
                    group["ceiling_mbps"].iloc[0],
                    cell["concurrent_requests"],
                    bare_mbps(raw, cell["rows_per_batch"], cell["concurrent_requests"]),
                ),
            }
        )
    return pd.DataFrame(rows, columns=COLUMNS)


def limit_mbps(ceiling: float, concurrent: int, bare: float) -> float:
    """What no server could exceed: the source's own pace for all readers, or what bare pyarrow reached here."""
    return min(concurrent * ceiling, bare)


def bare_mbps(raw: pd.DataFrame, rows_per_batch: int, concurrent: int) -> float:
    """The median of the bare peer's runs of the default table without delay; NaN where it was not run."""
    chosen = raw[
        (raw["mode"] == BARE)
        & (raw["variant"] == "default")
        & (raw["rows_per_batch"] == rows_per_batch)
        & (raw["concurrent_requests"] == concurrent)
        & (raw["error"] == "")
    ]
    return float(chosen.drop_duplicates("run")["run_throughput_mbps"].median())


def ratios(raw: pd.DataFrame) -> pd.DataFrame:
    """Both paths against the bare peer, without delay: runs that stood next to each other are pairs.

    The median of the pairs' ratios, not the ratio of medians: drift that both of a pair saw cancels.
    """
    free = raw[raw["delay_per_row"] == 0].drop_duplicates([*RATIO_CELL, "mode", "run"])
    rows = []
    for key, group in free.groupby(RATIO_CELL, sort=True):
        by_run = group.pivot(index="run", columns="mode", values="run_throughput_mbps")
        if not {BARE, *MODES} <= set(by_run.columns):
            continue
        row = _named(RATIO_CELL, key) | {"pairs": len(by_run)}
        for name, over, under in (
            ("sync_to_bare", SYNC, BARE),
            ("async_to_bare", ASYNC, BARE),
            ("async_to_sync", ASYNC, SYNC),
        ):
            pairs = by_run[over] / by_run[under]
            row |= {f"median_{name}": pairs.median(), f"min_{name}": pairs.min(), f"max_{name}": pairs.max()}
        rows.append(row | {f"median_{mode}_mbps": by_run[mode].median() for mode in (BARE, *MODES)})
    return pd.DataFrame(rows, columns=RATIO_COLUMNS)


def compare(result: pd.DataFrame) -> pd.DataFrame:
    """One row per cell, async against sync: `improvement` and its `noise` in percent, and shares of the limit.

    `noise` is the standard deviation of the difference of one run of each, in percent of sync.
    """
    by_mode = result.pivot(index=CELL, columns="mode")
    average, spread = by_mode["avg_throughput_mbps"], by_mode["std_throughput_mbps"]
    limit = by_mode["limit_mbps"][SYNC]
    compared = pd.DataFrame(
        {
            "sync_mbps": average[SYNC],
            "async_mbps": average[ASYNC],
            "limit_mbps": limit,
            "improvement": 100 * (average[ASYNC] / average[SYNC] - 1),
            "noise": 100 * np.hypot(spread[SYNC], spread[ASYNC]) / average[SYNC],
            "sync_of_limit": 100 * average[SYNC] / limit,
            "async_of_limit": 100 * average[ASYNC] / limit,
            "success_rate": np.minimum(by_mode["success_rate"][SYNC], by_mode["success_rate"][ASYNC]),
        }
    )
    return compared.reset_index()


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
