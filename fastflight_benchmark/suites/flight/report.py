"""Shows the result of the suite `flight` on the screen."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd
from rich.console import Console
from rich.text import Text

from fastflight_benchmark import targets
from fastflight_benchmark.contenders import AIO, BARE, NAMESAKE_ASYNC, NAMESAKE_SYNC, PEERS
from fastflight_benchmark.report import LOSS, NOISE, WIN, batch_title, show_targets, table, verdict
from fastflight_benchmark.suites.flight import summary

# Peers' names in narrow tables.
SHORT = {NAMESAKE_SYNC: "FF sync", NAMESAKE_ASYNC: "FF async", AIO: "aio"}


def show(console: Console, result: pd.DataFrame, servers: pd.DataFrame, ratios: pd.DataFrame, *, judged: bool) -> None:
    """Show the sweep, all servers, the ratios to peers and, if `judged`, whether the targets are met."""
    compared = summary.compare(result)
    grid = table(
        "MiB/s of all requests together; limit: the source's pace, or bare pyarrow in this run",
        ("delay", "rows per batch", "readers", "sync", "async", "limit", "sync of limit", "async of limit"),
        "async to sync",
    )
    for cell in compared.sort_values(["delay_per_row", "rows_per_batch", "concurrent_requests"]).to_dict("records"):
        grid.add_row(
            f"{cell['delay_per_row'] * 1e6:g} µs",
            f"{cell['rows_per_batch']:,}",
            f"{cell['concurrent_requests']}",
            f"{cell['sync_mbps']:.1f}",
            f"{cell['async_mbps']:.1f}",
            f"{cell['limit_mbps']:.1f}",
            f"{cell['sync_of_limit']:.0f} %",
            f"{cell['async_of_limit']:.0f} %",
            Text(
                f"{cell['improvement']:+.1f} ± {cell['noise']:.1f} %", style=verdict(cell["improvement"], cell["noise"])
            ),
        )
    console.print(grid)
    verdicts = [verdict(cell["improvement"], cell["noise"]) for cell in compared.to_dict("records")]
    console.print(
        f"async against sync in {len(verdicts)} cells: {verdicts.count(WIN)} better, {verdicts.count(LOSS)} worse, "
        f"{verdicts.count(NOISE)} within the noise (±: standard deviation of the difference of two runs)\n"
    )
    _show_servers(console, servers)
    _show_ratios(console, ratios)
    if judged:
        show_targets(console, targets.flight(compared, ratios))


def _show_servers(console: Console, servers: pd.DataFrame) -> None:
    grid = table(
        "Each server. first: ms to the first row; sent: batches in an answer;\n"
        "CPU: the server's seconds per GiB; busy: cores that the readers kept busy",
        ("batch", "delay", "readers", "MiB/s", "first", "sent", "CPU", "busy"),
        "server",
    )
    for row in servers.sort_values([*summary.CELL, "variant"]).to_dict("records"):
        grid.add_row(
            *_cell(row),
            f"{row['throughput_mbps']:.0f}",
            f"{1e3 * row['first_batch_seconds']:.1f}",
            f"{row['messages']:.0f}",
            f"{row['server_cpu_seconds_per_gib']:.2f}",
            f"{row['reader_cores']:.1f}",
            row["mode"],
        )
    console.print(grid)


def _show_ratios(console: Console, ratios: pd.DataFrame) -> None:
    peers = [name for name in PEERS if name in set(ratios["peer"])]
    grid = table(
        "Ours by peers' that give the same batches: median of pairs (of bare also lowest, highest)",
        ("batch", "delay", "readers", "path"),
        *(SHORT.get(name, name) for name in peers),
    )
    for _, cell in ratios[ratios["peer"].isin(peers)].groupby([*summary.CELL, "variant", "mode"]):
        rows = {row["peer"]: row for row in cell.to_dict("records")}
        first = next(iter(rows.values()))
        grid.add_row(*_cell(first), first["mode"], *(_ratio(rows.get(name), spread=name == BARE) for name in peers))
    console.print(grid)


def _cell(row: Mapping[Hashable, Any]) -> tuple[str, str, str]:
    rows = row["rows_per_batch"]
    return (
        batch_title(rows) if row["variant"] == "default" else f"{row['variant']} {rows:,}",
        f"{row['delay_per_row'] * 1e6:g} µs",
        f"{row['concurrent_requests']}",
    )


def _ratio(row: Mapping[Hashable, Any] | None, *, spread: bool) -> str:
    if row is None:
        return "-"
    return f"{row['median_ratio']:.2f}" + (f" ({row['min_ratio']:.2f}, {row['max_ratio']:.2f})" if spread else "")
