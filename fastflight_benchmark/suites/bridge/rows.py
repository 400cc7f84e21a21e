"""What is measured, as rows; and their summary."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields

import pandas as pd

CONNECT, START, PAIRS, ROUND_TRIP, BULK, WHOLE, IDLE = (
    "connect",
    "start",
    "beside socat",
    "round trip",
    "bulk",
    "whole",
    "idle",
)
SECONDS, RATE, RATIO, BYTES, PERCENT, PER_SECOND = "s", "MB/s", "ratio", "bytes", "percent", "1/s"
# What `server` is where the client has the device itself.
NO_SERVER = "none"


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. `error` says why there is none, and is no failure where a peer is not installed (`missing`)."""

    part: str
    server: str
    port: str
    device: str
    client: str
    work: str
    content: str
    run: int
    unit: str
    value: float = float("nan")
    error: str = ""
    missing: bool = False


COLUMNS = [field.name for field in fields(Row)]
KEYS = ["part", "server", "port", "device", "client", "work", "content", "unit"]
SUMMARY = [*KEYS, "count", "median", "p99", "lowest", "highest", "failed", "note"]


def frame(rows: Iterable[Row]) -> pd.DataFrame:
    """All rows, as they were measured."""
    return pd.DataFrame([asdict(row) for row in rows], columns=COLUMNS)


def summarize(raw: pd.DataFrame) -> pd.DataFrame:
    """One row of `SUMMARY` for each thing measured, in the order in which they first were."""
    found = []
    for key, group in raw.groupby(KEYS, sort=False):
        values = group["value"].dropna()
        errors = group["error"][group["error"] != ""]
        found.append(
            dict(zip(KEYS, key, strict=True))
            | {
                "count": len(values),
                "median": values.median(),
                "p99": values.quantile(0.99),
                "lowest": values.min(),
                "highest": values.max(),
                "failed": int((~group["missing"] & (group["error"] != "")).sum()),
                "note": errors.iloc[0] if len(errors) else "",
            }
        )
    return pd.DataFrame(found, columns=SUMMARY)
