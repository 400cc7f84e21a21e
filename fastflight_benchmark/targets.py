"""The targets of the project, and whether a result meets them. Pure: frames in, judgements out.

Each is a ratio within one run, of the median of pairs or of averages over runs; what was not measured is not judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from fastflight_benchmark.contenders import ASYNC, BARE, MODES, NAMESAKE_ASYNC, SYNC

# Rows of 50 int32: 8 kB, 190 kB, 2 MB.
SMALL, MIDDLE, LARGE = BATCHES = (40, 1_000, 10_000)
TO_BARE = {SYNC: 0.95, ASYNC: 0.9}
TO_NAMESAKE_ASYNC = 12.0
# Of the source's own pace, by one reader, with batches of so many rows.
OF_CEILING, CEILING_ROWS = 0.97, (5_000, 10_000)
# Percent that async is ahead of sync, on average over the sweep of delays that FastFlight published; and in each of the
# cells below. Smaller batches are left out of the average: async joins them, and is ahead by so much that it would hide
# all others; so are 64 readers, of whom two cores show little but their own contention.
AHEAD_ON_AVERAGE = 10.0
SWEPT_ROWS, SWEPT_READERS = (1_000, 5_000, 10_000), (1, 3, 5, 10)
AHEAD_DELAY, AHEAD_READERS = 1e-6, 5
# Small requests per second against a server that does nothing; p99 against its p99.
SMALL_TO_BARE, P99_TO_BARE = 0.95, 1.0


@dataclass(frozen=True, slots=True)
class Judged:
    """One target and what was reached; `reached` None: not measured."""

    title: str
    target: str
    reached: float | None
    met: bool | None
    unit: str = ""

    def __str__(self) -> str:
        if self.reached is None:
            return f"{self.title}: not measured; the target is {self.target}"
        return f"{self.title}: {self.reached:.3g}{self.unit}; the target is {self.target}: " + (
            "met" if self.met else "missed"
        )


def at_least(title: str, target: float, reached: float | None, unit: str = "") -> Judged:
    """A target that is met from a value on."""
    met = None if reached is None else reached >= target
    return Judged(title, f"{target:g}{unit}", reached, met, unit)


def flight(compared: pd.DataFrame, ratios: pd.DataFrame) -> list[Judged]:
    """The targets of the suite `flight`: of `summary.compare` and `summary.ratios`."""
    return [*_sweep(compared), *_peers(ratios)]


def _sweep(compared: pd.DataFrame) -> Iterator[Judged]:
    delayed = compared[compared["delay_per_row"] > 0]
    if delayed.empty:
        return
    swept = delayed[delayed["rows_per_batch"].isin(SWEPT_ROWS) & delayed["concurrent_requests"].isin(SWEPT_READERS)]
    if not swept.empty:
        # Where sync is at 98 % of the source's own pace, nothing is 10 % ahead of it.
        most = 100 * (swept[["limit_mbps", "async_mbps"]].max(axis=1) / swept["sync_mbps"] - 1).mean()
        title = (
            "async ahead of sync over the delay sweep, 1,000 to 10,000 rows and 1 to 10 readers, on average "
            f"(beside this sync the limits allow {most:.3g} %)"
        )
        yield at_least(title, AHEAD_ON_AVERAGE, swept["improvement"].mean(), " %")
    close = delayed[(delayed["delay_per_row"] == AHEAD_DELAY) & (delayed["concurrent_requests"] <= AHEAD_READERS)]
    if not close.empty:
        worst = float(close["improvement"].min())
        title = f"async ahead of sync in each cell at 1 µs with up to {AHEAD_READERS} readers; the worst"
        yield Judged(title, "above 0 %", worst, worst > 0, " %")
    alone = delayed[(delayed["concurrent_requests"] == 1) & delayed["rows_per_batch"].isin(CEILING_ROWS)]
    for cell in alone.to_dict("records"):
        title = (
            f"async, {cell['rows_per_batch']:,} rows, one reader, {cell['delay_per_row'] * 1e6:g} µs: of the ceiling"
        )
        yield at_least(title, OF_CEILING, cell["async_mbps"] / cell["ceiling_mbps"])


def _peers(ratios: pd.DataFrame) -> Iterator[Judged]:
    alone = ratios[
        (ratios["variant"] == "default") & (ratios["delay_per_row"] == 0) & (ratios["concurrent_requests"] == 1)
    ]
    for rows in BATCHES:
        for mode in MODES:
            title = f"{mode} against bare pyarrow, {rows:,} rows, one reader"
            yield at_least(title, TO_BARE[mode], _median(alone, rows, mode, BARE))
    title = f"async against FastFlight's async, {SMALL} rows, one reader"
    yield at_least(title, TO_NAMESAKE_ASYNC, _median(alone, SMALL, ASYNC, NAMESAKE_ASYNC))


def _median(ratios: pd.DataFrame, rows: int, mode: str, peer: str) -> float | None:
    found = ratios[(ratios["rows_per_batch"] == rows) & (ratios["mode"] == mode) & (ratios["peer"] == peer)]
    return None if found.empty else float(found["median_ratio"].iloc[0])


def requests(ratios: pd.DataFrame, operations: Sequence[str] = ("do_get", "get_flight_info")) -> list[Judged]:
    """The targets of the suite `requests`: the worst of all connections and loads."""
    judged = []
    for operation in operations:
        for mode in MODES:
            found = ratios[(ratios["operation"] == operation) & (ratios["mode"] == mode) & (ratios["peer"] == BARE)]
            for load, part in found.groupby("load"):
                title = f"{operation}, {mode}, load by {load}, against bare pyarrow; the worst number of connections"
                # One that has no ratio, as requests failed, is the worst.
                least = float(part["median_ratio"].min(skipna=False))
                judged.append(at_least(f"{title}: per second", SMALL_TO_BARE, least))
                worst = float(part["median_p99_ratio"].max(skipna=False))
                judged.append(Judged(f"{title}: p99", f"at most {P99_TO_BARE:g}", worst, worst <= P99_TO_BARE))
    return judged
