"""Fill the tables of docs/scale.md from docs/results.

    python -m fastflight_benchmark.scale_page

The tables are between `<!-- table: NAME -->` and `<!-- end -->`, as in `performance_page`; a test compares the page
with the results. While there are none, the page says so. What a million boards would need is computed from the largest
cell that worked and was not overloaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
import typer

from fastflight_benchmark import machine
from fastflight_benchmark.performance_page import DOCS, Results, filled, markdown_table
from fastflight_benchmark.suites.cluster.scaling import ROWS_PER_SECOND
from fastflight_benchmark.suites.cluster.stage import RECORDINGS
from fastflight_benchmark.suites.cluster.suite import PLACEMENT, REQUESTS, SCALE, SILENT, judged, verdict

PAGE = DOCS / "scale.md"
MILLION = 1_000_000
# A server is one process with one interpreter lock. The rest of a core is for requests, and for the devices of a server
# that died.
BUSY = 0.7
# With more boards than the cores can serve, rows come late and cost less, because more of them are handled at a time.
LATE_MS = 1000.0
COPIES = 3
DAY_SECONDS = 86_400
OWNERS = "stream KV_ff-owners"
# The figures that the page shows of each cell, with the format.
SHOWN = {
    "placed after": ",.1f",
    "settled after": ",.1f",
    "rows": ",.0f",
    "servers": ".2f",
    "servers for each board": ",.0f",
    "memory of servers for each board": ",.0f",
    "threads of servers": ",.0f",
    "NATS": ".2f",
    "memory of NATS": ",.0f",
    "idle": ".0f",
    "NATS in": ",.0f",
    "NATS in, bytes": ",.0f",
    "NATS out": ",.0f",
    OWNERS: ",.1f",
    f"stream {RECORDINGS}": ",.0f",
    f"stream {RECORDINGS}, bytes": ",.0f",
    "viewers passed on": ".2f",
    "row to viewer, median": ",.0f",
    "row to viewer, slowest viewer": ",.0f",
    "recorded after the last row": ".1f",
    "devices of the killed server": ",.0f",
    "owned again after a kill": ".1f",
    "the server is back after": ".1f",
    "moved back after a join": ".1f",
    "not moved back after a join": ",.0f",
}


def largest(results: Results) -> tuple[pd.Series[float], int, int]:
    """Return the figures, devices and servers of the largest cell that worked in time; 0 devices if none did."""
    cells = _cells(results)
    worked = [
        devices for devices, found in cells.items() if verdict(found)[1] and found["row to viewer, median"] <= LATE_MS
    ]
    if not worked:
        return pd.Series(dtype=float), 0, 0
    frame = results.frame("cluster")
    of = frame[(frame["part"] == SCALE) & (frame["devices"] == max(worked))]
    return cells[max(worked)], max(worked), int(of["servers"].iloc[0])


def _cells(results: Results, part: str = SCALE) -> dict[int, pd.Series[float]]:
    frame = results.frame("cluster")
    return {
        int(str(devices)): cell.set_index("what")["value"]
        for devices, cell in frame[frame["part"] == part].groupby("devices", sort=True)
    }


def _machine(results: Results) -> str:
    description = results.described("cluster")
    measured: Any = description["machine"]
    load = description["load"]
    return (
        f"Measured on: {machine.in_one_line(measured)}. In the minute before it began, {load:.1f} other programs were"
        " running or waiting for a core, on average."
    )


def _requests(results: Results) -> str:
    frame = results.frame("cluster")
    wide = frame[frame["part"] == REQUESTS].pivot(index=["what", "unit"], columns="servers", values="value")
    heads = [f"{count} in a cluster" if count else "one without a cluster" for count in wide.columns]
    rows = [
        [f"{what}, {unit}", *(f"{value:,.2f}" if unit == "share" else f"{value:,.0f}" for value in values)]
        for (what, unit), values in zip(wide.index, wide.to_numpy(), strict=True)
    ]
    return markdown_table(("servers", *heads), rows)


def _scale(results: Results, part: str = SCALE) -> str:
    frame = results.frame("cluster")
    cells, units = _cells(results, part), dict(frame[frame["part"] == part][["what", "unit"]].to_numpy())
    rows = [
        [f"{what}, {units[what]}", *(f"{found[what]:{how}}" if what in found else "-" for found in cells.values())]
        for what, how in SHOWN.items()
        if what in units
    ]
    return markdown_table(("devices", *(f"{devices:,}" for devices in cells)), rows)


def _silent(results: Results) -> str:
    return _scale(results, SILENT)


def _verdicts(results: Results) -> str:
    frame = results.frame("cluster")
    chosen = judged(frame[frame["part"] == SCALE])
    return "\n".join(f"- {one.text}: {'all there' if one.met else '**not all there**'}." for one in chosen)


def needs(found: pd.Series[float], devices: int, servers: int) -> dict[str, float]:
    """Return what a million boards would need, if everything grows as it does up to `devices` on `servers`."""
    for_each = found["servers for each board"] / 1e6
    boards_per_server = BUSY / for_each
    memory = boards_per_server * found["memory of servers for each board"] * 1024
    needed = MILLION / boards_per_server
    stored = found[f"stream {RECORDINGS}, bytes"] / devices * MILLION
    renewals = found[OWNERS] / servers
    return {
        "boards of a server": boards_per_server,
        "servers": needed,
        "memory of a server for its boards, GB": memory / 1e9,
        "cores of NATS": found["NATS"] / devices * MILLION,
        "renewals of leases per second": renewals * needed,
        "renewals per second that all servers hear": renewals * needed * needed,
        "subjects of recordings": MILLION,
        "messages per second to store in recordings": found[f"stream {RECORDINGS}"] / devices * MILLION,
        "recordings, MB/s": stored / 1e6,
        f"recordings, MB/s with {COPIES} copies": COPIES * stored / 1e6,
        f"disk, TB a day with {COPIES} copies": COPIES * stored * DAY_SECONDS / 1e12,
        "devices that move when a server joins or dies": boards_per_server,
    }  # fmt: skip


def _million(results: Results) -> str:
    found, devices, servers = largest(results)
    if not devices:
        return "No number of boards worked in time, so there is nothing to compute from."
    rows = [
        [what, f"{value:,.1f}" if value < 100 else f"{value:,.0f}"]
        for what, value in needs(found, devices, servers).items()
    ]
    head = f"1,000,000 boards, {ROWS_PER_SECOND:g} row/s each, as with {devices:,} on {servers} servers"
    return markdown_table((head, ""), rows)


def _placement(results: Results) -> str:
    frame = results.frame("cluster")
    of = frame[frame["part"] == PLACEMENT]
    found = of.set_index("what")["value"]
    return (
        f"With {of['devices'].iloc[0]:,} devices on {of['servers'].iloc[0]:,} servers,"
        f" {found['servers that join, and that die']:.0f} joins moved {found['moved at joins']:,.0f} devices,"
        f" {found['moved at joins, by the least possible']:.4f} of the least possible, and as many deaths"
        f" {found['moved at deaths']:,.0f}, {found['moved at deaths, by the least possible']:.4f} of it. The fullest"
        f" server has {found['devices of the fullest server, by the mean']:.2f} times the mean."
    )


def _measured(make: Callable[[Results], str]) -> Callable[[Results], str]:
    """Return a function that says so if there is no result yet."""

    def table(results: Results) -> str:
        try:
            return make(results)
        except FileNotFoundError:
            return "Not measured yet on a computer that does nothing else."

    return table


TABLES: Mapping[str, Callable[[Results], str]] = {
    name: _measured(make)
    for name, make in {
        "machine": _machine,
        "requests": _requests,
        "scale": _scale,
        "silent": _silent,
        "verdicts": _verdicts,
        "million": _million,
        "placement": _placement,
    }.items()
}

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main() -> None:
    """Fill the tables of docs/scale.md from docs/results."""
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), Results(DOCS / "results"), TABLES), encoding="utf-8")
    typer.echo(PAGE)


if __name__ == "__main__":
    app()
