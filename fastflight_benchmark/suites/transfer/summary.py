"""Computes the rows of a result from single transfers: medians, limits, ratios. Pure functions on frames.

`raw` is a frame of `RAW_COLUMNS`, one row per transfer. `error` is empty for a transfer whose bytes are all correct.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from fastflight_benchmark.suites.transfer.carriers import MPREMOTE, MPREMOTE_PTY
from fastflight_benchmark.suites.transfer.contents import ASYNC, OURS, SYNC

# Kinds of transfers: the first one of a connection, a later one, and one of the sweep of chunks and drains.
FIRST, STEADY, TUNING = "first", "steady", "tuning"
# The line speed that stands for a line without a pace.
WITHOUT_PACE = 0

# The columns of a cell, without path, operation and kind. Transfers with the same values have a common median.
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
    """Return a row of `COLUMNS` per cell, operation and path; then a row for each `planned` cell that was not run."""
    rows = []
    for key, group in raw.groupby(KEY, sort=True):
        by_path = {str(path): transfers for path, transfers in group.groupby("path")}
        for path in OURS:
            if path in by_path:
                rows.append(dict(zip(KEY, key, strict=True)) | {"path": path} | _row(by_path, path))
    for cell in planned:
        if cell["skipped"]:
            rows += _skipped(cell)
    return pd.DataFrame(rows, columns=COLUMNS)


def _row(by_path: Mapping[str, pd.DataFrame], path: str) -> dict[str, Any]:
    transfers = by_path[path]
    correct = transfers[transfers["error"] == ""]
    size, seconds = transfers["size"].iloc[0], correct["seconds"].median()
    limit = transfers["limit_bytes_per_second"].median()
    return {
        "runs": transfers["run"].nunique(),
        "seconds": seconds,
        "min_seconds": correct["seconds"].min(),
        "max_seconds": correct["seconds"].max(),
        "bytes_per_second": size / seconds,
        "limit_bytes_per_second": limit,
        "of_limit": size / seconds / limit,
        # How many times as fast async is.
        "async_to_sync": _ratio(by_path, SYNC, path, ["run", "round"]) if path == ASYNC else float("nan"),
        "mpremote_seconds": _median(by_path, MPREMOTE),
        "vs_mpremote": _ratio(by_path, MPREMOTE, path),
        "mpremote_pty_seconds": _median(by_path, MPREMOTE_PTY),
        "vs_mpremote_pty": _ratio(by_path, MPREMOTE_PTY, path),
        "verified": f"{len(correct)}/{len(transfers)}",
        "status": "run",
    }


def _median(by_path: Mapping[str, pd.DataFrame], path: str) -> float:
    if path not in by_path:
        return float("nan")
    transfers = by_path[path]
    return float(transfers[transfers["error"] == ""]["seconds"].median())


def _ratio(by_path: Mapping[str, pd.DataFrame], slower: str, faster: str, pairs: Sequence[str] = ("run",)) -> float:
    """Return how many times as long `slower` took: the median of pairs with the same values in the columns `pairs`."""
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
