"""The targets of the project, and whether a result meets them. Frames in, judgements out.

Each target is a ratio within one run, from the median of pairs or from averages over runs. A target without a
measurement is not judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from fastflight_benchmark.contenders import ASYNC, BARE, MODES, NAMESAKE_ASYNC, NAMESAKE_SYNC, PARSING

# Rows of 50 int32: 8 kB, 190 kB, 2 MB.
SMALL, _, LARGE = BATCHES = (40, 1_000, 10_000)
# The least share of bare pyarrow and of FastFlight's sync path, without delay, with these numbers of readers.
TO_PEERS, READERS = 0.95, (1, 16, 64)
TO_NAMESAKE_ASYNC = 12.0
# The least share of the source's own pace, with one reader and batches of these sizes.
OF_CEILING, CEILING_ROWS = 0.97, (5_000, 10_000)
# Percent by which async must be ahead of sync, on average over the sweep of delays that FastFlight published. Smaller
# batches are left out, since async is so far ahead there that they would hide all others. 64 readers are left out too:
# on two cores they mostly measure contention.
AHEAD_ON_AVERAGE = 10.0
SWEPT_ROWS, SWEPT_READERS = (1_000, 5_000, 10_000), (1, 3, 5, 10)
# Percent that async may be behind sync in any cell of the sweep.
BEHIND = 1.0
# Small requests per second, compared with a server that only parses the ticket or descriptor. p99 is compared with that
# of a server with prepared answers, with this number of connections.
SMALL_TO_PARSING = {"do_get": 0.85, "get_flight_info": 0.9}
P99_TO_BARE, P99_CONNECTIONS = 1.3, 16


@dataclass(frozen=True, slots=True)
class Judged:
    """One target and the figure that was reached; `reached` is None if it was not measured."""

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
    """Return a target that is met by `target` and every higher value."""
    met = None if reached is None else reached >= target
    return Judged(title, f"{target:g}{unit}", reached, met, unit)


def flight(compared: pd.DataFrame, ratios: pd.DataFrame) -> list[Judged]:
    """Return the targets of the suite `flight`, from `summary.compare` and `summary.ratios`."""
    return [*_sweep(compared), *_peers(ratios)]


def _sweep(compared: pd.DataFrame) -> Iterator[Judged]:
    delayed = compared[compared["delay_per_row"] > 0]
    if delayed.empty:
        return
    swept = delayed[delayed["rows_per_batch"].isin(SWEPT_ROWS) & delayed["concurrent_requests"].isin(SWEPT_READERS)]
    if not swept.empty:
        # If sync reaches 98 % of the source's own pace, async cannot be 10 % faster.
        most = 100 * (swept[["limit_mbps", "async_mbps"]].max(axis=1) / swept["sync_mbps"] - 1).mean()
        title = (
            "async ahead of sync over the delay sweep, 1,000 to 10,000 rows and 1 to 10 readers, on average "
            f"(beside this sync the limits allow {most:.3g} %)"
        )
        yield at_least(title, AHEAD_ON_AVERAGE, swept["improvement"].mean(), " %")
    worst = delayed.sort_values("improvement").to_dict("records")[0]
    title = (
        f"async ahead of sync in each cell of the delay sweep; the worst, {worst['rows_per_batch']:,} rows, "
        f"{worst['concurrent_requests']} readers, {worst['delay_per_row'] * 1e6:g} µs"
    )
    yield at_least(title, -BEHIND, worst["improvement"], " %")
    alone = delayed[(delayed["concurrent_requests"] == 1) & delayed["rows_per_batch"].isin(CEILING_ROWS)]
    for cell in alone.to_dict("records"):
        title = (
            f"async, {cell['rows_per_batch']:,} rows, one reader, {cell['delay_per_row'] * 1e6:g} µs: of the ceiling"
        )
        yield at_least(title, OF_CEILING, cell["async_mbps"] / cell["ceiling_mbps"])


def _peers(ratios: pd.DataFrame) -> Iterator[Judged]:
    free = ratios[(ratios["variant"] == "default") & (ratios["delay_per_row"] == 0)]
    for peer, name in ((BARE, "bare pyarrow"), (NAMESAKE_SYNC, "FastFlight's sync")):
        for readers in READERS:
            by = "one reader" if readers == 1 else f"{readers} readers"
            for rows in BATCHES:
                for mode in MODES:
                    title = f"{mode} against {name}, {rows:,} rows, {by}"
                    yield at_least(title, TO_PEERS, _median(free, rows, readers, mode, peer))
    title = f"async against FastFlight's async, {SMALL} rows, one reader"
    yield at_least(title, TO_NAMESAKE_ASYNC, _median(free, SMALL, 1, ASYNC, NAMESAKE_ASYNC))


def _median(ratios: pd.DataFrame, rows: int, readers: int, mode: str, peer: str) -> float | None:
    found = ratios[
        (ratios["rows_per_batch"] == rows)
        & (ratios["concurrent_requests"] == readers)
        & (ratios["mode"] == mode)
        & (ratios["peer"] == peer)
    ]
    return None if found.empty else float(found["median_ratio"].iloc[0])


def requests(ratios: pd.DataFrame) -> list[Judged]:
    """Return the targets of the suite `requests`: for each load, the worst number of connections."""
    return [
        judged
        for operation, least in SMALL_TO_PARSING.items()
        for mode in MODES
        for judged in _small(ratios[(ratios["operation"] == operation) & (ratios["mode"] == mode)], least)
    ]


def _small(ratios: pd.DataFrame, least: float) -> Iterator[Judged]:
    for load, of_load in ratios.groupby("load"):
        by_peer = {peer: of_load[of_load["peer"] == peer] for peer in (PARSING, NAMESAKE_SYNC, BARE)}
        operation, mode = of_load["operation"].iloc[0], of_load["mode"].iloc[0]
        subject = f"{operation}, {mode}, load by {load}"
        for peer, target, name in (
            (PARSING, least, "bare pyarrow that reads what is asked for"),
            (NAMESAKE_SYNC, 1.0, "FastFlight's sync"),
        ):
            if not by_peer[peer].empty:
                title = f"{subject}, against {name}; the worst number of connections: per second"
                # A cell without a ratio, because requests failed, is the worst.
                yield at_least(title, target, float(by_peer[peer]["median_ratio"].min(skipna=False)))
        at = by_peer[BARE][by_peer[BARE]["connections"] == P99_CONNECTIONS]
        if not at.empty:
            worst = float(at["median_p99_ratio"].iloc[0])
            title = f"{subject}, against bare pyarrow, {P99_CONNECTIONS} connections: p99"
            yield Judged(title, f"at most {P99_TO_BARE:g}", worst, worst <= P99_TO_BARE)
