"""The measurements of live sessions as rows, and their summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

BOARDS, KEPT, FULL, READERS, STALLED = "boards", "recorded", "full speed", "readers", "stalled"
KEYS = ["part", "boards", "readers", "mode", "recorded", "bytes_per_second", "format", "stall_seconds"]
# Counts, which are added up over the runs.
COUNTS = ["printed", "expected", "received", "gaps", "told", "missing", "wrong", "kept_rows", "kept_wrong"]
MEDIANS = ["p50_ms", "p99_ms", "server_cores", "boards_cores", "readers_cores", "idle_percent", "open_seconds"]
MOSTS = ["most_ms", "server_mb", "threads"]
COLUMNS = ["run", *KEYS, "seconds", *COUNTS, *MEDIANS, *MOSTS, "replay_mbps", "error"]
SUMMARY = [*KEYS, "runs", *COUNTS, *MEDIANS, *MOSTS, "replay_mbps", "failed", "note"]


def frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return a frame of all rows, in the order of measurement."""
    return pd.DataFrame(rows, columns=COLUMNS)


def summarize(raw: pd.DataFrame) -> pd.DataFrame:
    """Return a row of `SUMMARY` per cell: sums of counts, medians over runs, highest memory, threads and time."""
    found = []
    for key, group in raw.groupby(KEYS, sort=False):
        errors = group["error"][group["error"] != ""]
        found.append(
            dict(zip(KEYS, key, strict=True))
            | {"runs": len(group), "failed": len(errors), "note": errors.iloc[0] if len(errors) else ""}
            | {name: group[name].sum(min_count=1) for name in COUNTS}
            | {name: group[name].median() for name in [*MEDIANS, "replay_mbps"]}
            | {name: group[name].max() for name in MOSTS}
        )
    return pd.DataFrame(found, columns=SUMMARY)
