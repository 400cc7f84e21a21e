"""The plots of the suite `sessions`: time from the line to the reader, and what the server uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from fastflight_benchmark.contenders import ASYNC
from fastflight_benchmark.plots import ASYNC_COLOUR, BACKED, SYNC_COLOUR, finish
from fastflight_benchmark.suites.sessions.report import KEPT_CORES, KEPT_MB, P50_MS, P99_MS
from fastflight_benchmark.suites.sessions.rows import FULL, STALLED

TARGET_COLOUR = "#2e8b57"
KEPT_COLOUR = "#d08a2e"
BITS_PER_BYTE = 10
P99_ROWS = 100
NOTE = "Boards, server and readers share the cores. Medians of runs; cores are of the server alone"


def sessions(result: pd.DataFrame, description: Mapping[str, Any]) -> dict[str, Figure]:
    """Return all plots of a result. They leave out cells that failed, and say how many there are."""
    succeeded = (result["failed"] == 0) & result["p50_ms"].notna()
    note = NOTE if succeeded.all() else f"{NOTE}. {(~succeeded).sum()} failed cells are left out"
    measured = result[succeeded]
    return {"latency": latency(measured, description, note), "cost": cost(measured, description, note)}


def latency(cells: pd.DataFrame, description: Mapping[str, Any], note: str) -> Figure:
    """Draw milliseconds from printing to the reader, median and a line up to p99, on a logarithmic scale."""
    figure, axes = plt.subplots(figsize=(12.5, 4.8))
    for place, row in enumerate(cells.to_dict("records")):
        axes.bar(place, row["p50_ms"], 0.62, color=_colour(row))
        axes.vlines(place, row["p50_ms"], row["p99_ms"], colors="#555555", lw=1)
        text = f"{_digits(row['p50_ms'])}\np99 {_digits(row['p99_ms'])}"
        axes.text(place, row["p99_ms"] * 1.15, text, ha="center", fontsize=6.5, bbox=BACKED)
    axes.axhline(P50_MS, color=TARGET_COLOUR, lw=1, ls="--", label="target of 100 boards, median")
    axes.axhline(P99_MS, color=TARGET_COLOUR, lw=1, ls=":", label="target of 100 boards, p99")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.margins(y=0.18)
    axes.set_ylabel("ms")
    _named(axes, cells)
    figure.suptitle("From the line to the reader", x=0.02, ha="left", fontsize=12)
    _legend(figure, axes)
    few = f"p99 of fewer than {P99_ROWS} rows is about their highest"
    finish(figure, f"{note}. Bars: median, lines: up to p99; {few}. flush_ms 0", description)
    return figure


def cost(cells: pd.DataFrame, description: Mapping[str, Any], note: str) -> Figure:
    """Draw the server's cores and its memory in each cell."""
    figure, (cores, memory) = plt.subplots(2, 1, figsize=(12.5, 6.4), sharex=True)
    for axes, name, target, unit, digits in (
        (cores, "server_cores", KEPT_CORES, "cores", 2),
        (memory, "server_mb", KEPT_MB, "MiB resident, most", 0),
    ):
        for place, row in enumerate(cells.to_dict("records")):
            axes.bar(place, row[name], 0.62, color=_colour(row))
            axes.text(place, row[name], f"{row[name]:.{digits}f}", ha="center", va="bottom", fontsize=6.5)
        axes.axhline(target, color=TARGET_COLOUR, lw=1, ls="--", label="target of 1,000 boards")
        axes.set_ylabel(unit)
        axes.margins(y=0.15)
    _named(memory, cells)
    cores.spines[["top", "right"]].set_visible(False)
    figure.suptitle("What the server uses", x=0.02, ha="left", fontsize=12)
    _legend(figure, cores)
    finish(figure, note, description)
    return figure


def _colour(row: Mapping[Any, Any]) -> str:
    if row["recorded"]:
        return KEPT_COLOUR
    return ASYNC_COLOUR if row["mode"] == ASYNC else SYNC_COLOUR


def _named(axes: Axes, cells: pd.DataFrame) -> None:
    axes.set_xticks(range(len(cells)), [_name(row) for row in cells.to_dict("records")], fontsize=6)
    axes.spines[["top", "right"]].set_visible(False)


def _name(row: Mapping[Any, Any]) -> str:
    lines: Sequence[str] = [f"{row['boards']:,}\nboards" if row["boards"] > 1 else "1\nboard", f"{row['readers']} read"]
    if row["part"] == FULL:
        lines = [_speed(row), lines[1]]
    if row["part"] == STALLED:
        lines = [_speed(row), "stalled" if row["stall_seconds"] else f"{row['readers']} beside"]
    return "\n".join([*lines, row["mode"]])


def _speed(row: Mapping[Any, Any]) -> str:
    return f"{row['bytes_per_second'] * BITS_PER_BYTE / 1e6:g}\nMbaud"


def _digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}"


def _legend(figure: Figure, axes: Axes) -> None:
    for name, colour in (("async", ASYNC_COLOUR), ("sync", SYNC_COLOUR), ("recorded", KEPT_COLOUR)):
        axes.bar(0, 0, color=colour, label=name)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper right", ncols=6, frameon=False, fontsize=8)
