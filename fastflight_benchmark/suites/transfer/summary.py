"""From single transfers to the rows of a result: medians, limits, ratios. Pure: frames in, frames out.

`raw` is a frame of `RAW_COLUMNS`, one row per transfer. `error` is empty for one that was right, byte by byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from fastflight_benchmark.suites.transfer.carriers import MPREMOTE, MPREMOTE_PTY
from fastflight_benchmark.suites.transfer.contents import ASYNC, OURS, SYNC

# What a transfer shows: a connection's first one, one like any other, one of the sweep of chunks and drains.
FIRST, STEADY, TUNING = "first", "steady", "tuning"
# The speed of a line that is bound by nothing but the processes at its ends.
WITHOUT_PACE = 0

# What is the same for all transfers whose median is taken, apart from path, operation and kind.
CELL = ["line", "content", "size", "chunk", "drain"]
KEY = ["kind", *CELL, "operation"]
RAW_COLUMNS = [
    *KEY,
    "path",
    "run",
    "round",
    "seconds",
    "limit_bytes_per_second",
    "round_trip_seconds",
    "error",
]
COLUMNS = [
    *KEY,
    "path",
    "runs",
    "seconds",
    "min_seconds",
    "max_seconds",
    "bytes_per_second",
    "limit_bytes_per_second",
    "of_limit",
    "async_to_sync",
    "mpremote_seconds",
    "vs_mpremote",
    "mpremote_pty_seconds",
    "vs_mpremote_pty",
    "verified",
    "status",
]


def aggregate(raw: pd.DataFrame, planned: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """One row of `COLUMNS` per cell, operation and path of ours; then those of `planned` that were not run."""
    rows = []
    for key, group in raw.groupby(KEY, sort=True):
        by_path = {str(path): made for path, made in group.groupby("path")}
        for path in OURS:
            if path in by_path:
                rows.append(dict(zip(KEY, key, strict=True)) | {"path": path} | _row(by_path, path))
    for cell in planned:
        if cell["skipped"]:
            rows += _skipped(cell)
    return pd.DataFrame(rows, columns=COLUMNS)


def _row(by_path: Mapping[str, pd.DataFrame], path: str) -> dict[str, Any]:
    made = by_path[path]
    right = made[made["error"] == ""]
    size, seconds = made["size"].iloc[0], right["seconds"].median()
    limit = made["limit_bytes_per_second"].median()
    return {
        "runs": made["run"].nunique(),
        "seconds": seconds,
        "min_seconds": right["seconds"].min(),
        "max_seconds": right["seconds"].max(),
        "bytes_per_second": size / seconds,
        "limit_bytes_per_second": limit,
        "of_limit": size / seconds / limit,
        # How much faster async is: more than 1 where it is.
        "async_to_sync": _ratio(by_path, SYNC, path, ["run", "round"]) if path == ASYNC else float("nan"),
        "mpremote_seconds": _median(by_path, MPREMOTE),
        "vs_mpremote": _ratio(by_path, MPREMOTE, path),
        "mpremote_pty_seconds": _median(by_path, MPREMOTE_PTY),
        "vs_mpremote_pty": _ratio(by_path, MPREMOTE_PTY, path),
        "verified": f"{len(right)}/{len(made)}",
        "status": "run",
    }


def _median(by_path: Mapping[str, pd.DataFrame], path: str) -> float:
    if path not in by_path:
        return float("nan")
    made = by_path[path]
    return float(made[made["error"] == ""]["seconds"].median())


def _ratio(by_path: Mapping[str, pd.DataFrame], slower: str, faster: str, pairs: Sequence[str] = ("run",)) -> float:
    """The median of how many times as long `slower` took: of `pairs` that stood next to each other."""
    if slower not in by_path or faster not in by_path:
        return float("nan")
    over, under = (
        by_path[path][by_path[path]["error"] == ""].groupby(list(pairs))["seconds"].median()
        for path in (slower, faster)
    )
    return float((over / under).median())


def _skipped(cell: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    kind = TUNING if cell["chunk"] else STEADY
    for operation in cell["operations"]:
        for path in cell["paths"]:
            yield {name: cell[name] for name in CELL} | {
                "kind": kind,
                "operation": operation,
                "path": path,
                "runs": 0,
                "status": f"not run: {cell['skipped']}",
            }
