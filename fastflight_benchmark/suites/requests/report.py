"""Shows a result of the suite `requests` on the screen."""

from __future__ import annotations

import pandas as pd
from rich.console import Console
from rich.text import Text

from fastflight_benchmark import targets
from fastflight_benchmark.contenders import BARE, PARSING
from fastflight_benchmark.report import LOSS, NOISE, WIN, show_targets, table


def show(console: Console, result: pd.DataFrame, ratios: pd.DataFrame, *, judged: bool) -> None:
    """Show each server, the ratios to peers and, if `judged`, whether the targets are met."""
    for (operation, load), cells in result.groupby(["operation", "load"], sort=False):
        _show_servers(console, f"{operation}, load by {load}: medians; CPU: the server's, for each", cells)
        of = ratios[(ratios["operation"] == operation) & (ratios["load"] == load)]
        if not of.empty:
            _show_ratios(console, f"{operation}, load by {load}: ours by peers', median (lowest, highest) of pairs", of)
    if judged:
        show_targets(console, targets.requests(ratios))


def _show_servers(console: Console, title: str, cells: pd.DataFrame) -> None:
    grid = table(title, ("connections", "per second", "p50 ms", "p99 ms", "CPU µs"), "server")
    for row in cells.to_dict("records"):
        grid.add_row(
            f"{row['connections']}",
            f"{row['per_second']:,.0f}",
            f"{row['p50_ms']:.2f}",
            f"{row['p99_ms']:.2f}",
            f"{row['server_cpu_us']:.0f}",
            row["mode"],
        )
    console.print(grid)


def _show_ratios(console: Console, title: str, ratios: pd.DataFrame) -> None:
    grid = table(title, ("connections", "ours", "peer", "p99", "CPU"), "per second")
    for row in ratios.to_dict("records"):
        rate = f"{row['median_ratio']:.2f} ({row['min_ratio']:.2f}, {row['max_ratio']:.2f})"
        grid.add_row(
            f"{row['connections']}",
            row["mode"],
            row["peer"],
            f"{row['median_p99_ratio']:.2f}",
            f"{row['median_cpu_ratio']:.2f}",
            Text(rate, style=_style(row["peer"], row["min_ratio"], row["max_ratio"])),
        )
    console.print(grid)


def _style(peer: str, lowest: float, highest: float) -> str:
    """Return the colour of a ratio: a win or a loss only if all pairs agree. Targets allow a little less than bare."""
    least = min(targets.SMALL_TO_PARSING.values()) if peer in (BARE, PARSING) else 1.0
    return WIN if lowest >= least else LOSS if highest < least else NOISE
