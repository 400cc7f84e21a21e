"""Computes the rows of a result of the suite `requests` from measured loads. Pure functions on frames.

`raw` is a frame of `RAW_COLUMNS`: a row for each load of one operation on one server.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from fastflight_benchmark.contenders import ASYNC, MODES, SYNC

CELL = ["operation", "load", "connections"]
RAW_COLUMNS = [
    *CELL,
    "mode",
    "run",
    "requests",
    "failed",
    "seconds",
    "per_second",
    "p50_ms",
    "p99_ms",
    "server_cpu_us",
    "load_cores",
    "error",
]
MEASURED = ["per_second", "p50_ms", "p99_ms", "server_cpu_us", "load_cores"]
COLUMNS = [*CELL, "mode", "runs", *MEASURED, "min_per_second", "max_per_second", "requests", "failed"]
RATIOS = {"": "per_second", "p99_": "p99_ms", "cpu_": "server_cpu_us"}
RATIO_COLUMNS = [
    *CELL,
    "mode",
    "peer",
    "pairs",
    *(f"{statistic}_{name}ratio" for name in RATIOS for statistic in ("median", "min", "max")),
]


def aggregate(raw: pd.DataFrame) -> pd.DataFrame:
    """Return medians over runs: a row for each operation, load, number of connections and server."""
    rows = []
    for key, group in raw.groupby([*CELL, "mode"], sort=True):
        rows.append(
            dict(zip([*CELL, "mode"], key, strict=True))
            | {"runs": len(group)}
            | {name: group[name].median() for name in MEASURED}
            | {"min_per_second": group["per_second"].min(), "max_per_second": group["per_second"].max()}
            | {"requests": group["requests"].sum(), "failed": group["failed"].sum()}
        )
    return pd.DataFrame(rows, columns=COLUMNS)


def ratios(raw: pd.DataFrame, pairs: Sequence[tuple[str, str]] | None = None) -> pd.DataFrame:
    """Return ratios between servers: of requests per second, p99 and processor time of the server.

    Without `pairs`, they compare both paths with each peer, and async with sync. A ratio is that of two loads of the
    same run. A load with a failed request is left out. If all loads of a server failed, its ratios are NaN: a
    missing row could be overlooked.
    """
    rows = []
    for key, group in raw.groupby(CELL, sort=True):
        modes = list(group["mode"].unique())
        successful = group[group["failed"] == 0]
        by_run = {
            column: successful.pivot(index="run", columns="mode", values=column).reindex(columns=modes)
            for column in RATIOS.values()
        }
        for mode, peer in pairs or _ours_and_peers(modes):
            if not {mode, peer} <= set(modes):
                continue
            row = dict(zip(CELL, key, strict=True)) | {"mode": mode, "peer": peer}
            for name, column in RATIOS.items():
                each = (by_run[column][mode] / by_run[column][peer]).dropna()
                row |= {"pairs": len(each)} if not name else {}
                row |= {f"median_{name}ratio": each.median()}
                row |= {f"min_{name}ratio": each.min(), f"max_{name}ratio": each.max()}
            rows.append(row)
    return pd.DataFrame(rows, columns=RATIO_COLUMNS)


def _ours_and_peers(modes: Sequence[str]) -> list[tuple[str, str]]:
    peers = [name for name in modes if name not in MODES]
    return [*((mode, peer) for peer in peers for mode in MODES), (ASYNC, SYNC)]
