"""The measurements of the suite `bridge` as rows, and their summary."""

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
# The value of `server` for a client that uses the device without a bridge.
NO_SERVER = "none"


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. `error` says why there is none. With `missing`, the peer is not installed, which is not a failure."""

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
    """Return a frame of all rows, in the order of measurement."""
    return pd.DataFrame([asdict(row) for row in rows], columns=COLUMNS)


def summarize(raw: pd.DataFrame) -> pd.DataFrame:
    """Return a row of `SUMMARY` for each measured case, in the order of the first measurements."""
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
