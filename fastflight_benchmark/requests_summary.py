"""From measured loads to the rows of a result of the suite `requests`. Pure: frames in, frames out.

`raw` is a frame of `RAW_COLUMNS`: a row for each time that a server was loaded with one operation.
"""

from __future__ import annotations

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
    """Medians over runs, a row for each operation, load, number of connections and server."""
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


def ratios(raw: pd.DataFrame) -> pd.DataFrame:
    """Ours against each peer, and async against sync: requests per second, p99 and processor time of the server.

    A pair is of one run; a load in which a request failed is none.
    """
    rows = []
    for key, group in raw[raw["failed"] == 0].groupby(CELL, sort=True):
        by_run = group.pivot(index="run", columns="mode", values=list(RATIOS.values()))
        modes = list(group["mode"].unique())
        peers = [name for name in modes if name not in MODES]
        for mode, peer in [*((mode, peer) for peer in peers for mode in MODES), (ASYNC, SYNC)]:
            if not {mode, peer} <= set(modes):
                continue
            row = dict(zip(CELL, key, strict=True)) | {"mode": mode, "peer": peer}
            for name, column in RATIOS.items():
                pairs = (by_run[column][mode] / by_run[column][peer]).dropna()
                row |= {"pairs": len(pairs)} if not name else {}
                row |= {f"median_{name}ratio": pairs.median()}
                row |= {f"min_{name}ratio": pairs.min(), f"max_{name}ratio": pairs.max()}
            rows.append(row)
    found = pd.DataFrame(rows, columns=RATIO_COLUMNS)
    return found[found["pairs"] > 0].reset_index(drop=True)
