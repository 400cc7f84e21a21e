"""The plots of a flight result, as matplotlib figures: frames in, figures out.

A heatmap shows one delay: how much more throughput async has than sync. Its colours are centred on zero and reach as
far below as above, so that a loss stands out as much as a win; a difference within the noise of the runs is said to be.
"""

from __future__ import annotations

import textwrap
from collections.abc import Hashable, Mapping
from typing import Any

import matplotlib

matplotlib.use("Agg")  # before pyplot: there may be no display

import pandas as pd
import seaborn as sns
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fastflight_benchmark import machine
from fastflight_benchmark.report import NOISE, delay_title, verdict

# Percent at which a heatmap's colours end, at the least: noise of a percent must not look like a result.
LEAST_SCALE = 10.0
# And at the most: one cell where all failed must not pale the others. The bar of colours ends in a point where there is
# more.
MOST_SCALE = 50.0
# Blue for better and red for worse: told apart by the colour-blind too.
DIVERGING = "vlag_r"
SYNC_COLOUR, ASYNC_COLOUR, LIMIT_COLOUR = "#8c8c8c", "#2f6f9f", "#1a1a1a"
# In ten inches of width, at the size of a footer.
FOOTER_CHARACTERS = 185
DPI = 150
# Of a figure at a bar: a line that passes behind it does not strike it out.
BACKED: Mapping[str, Any] = {"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.85}
# Share of the scale from which a heatmap's colour needs white letters.
DARK = 0.7


def heatmap(compared: pd.DataFrame, delay: float, description: Mapping[str, Any]) -> Figure:
    """Async against sync at one delay: rows are concurrent requests, columns are batch sizes."""
    cells = compared[compared["delay_per_row"] == delay]
    improvement = _grid(cells, "improvement")
    scale = min(MOST_SCALE, max(LEAST_SCALE, float(improvement.abs().max().max())))
    over, under = improvement.to_numpy().max() > scale, improvement.to_numpy().min() < -scale
    extend = {(True, True): "both", (True, False): "max", (False, True): "min"}.get(
        (bool(over), bool(under)), "neither"
    )
    figure, axes = plt.subplots(figsize=(8.6, 1.9 + 0.95 * len(improvement)))
    sns.heatmap(
        improvement,
        ax=axes,
        cmap=DIVERGING,
        vmin=-scale,
        vmax=scale,
        linewidths=1.5,
        cbar_kws={"label": "async to sync, % (blue: async faster)", "format": _signed, "pad": 0.03, "extend": extend},
    )
    for cell in cells.to_dict("records"):
        column = list(improvement.columns).index(cell["rows_per_batch"])
        row = list(improvement.index).index(cell["concurrent_requests"])
        colour = "white" if abs(cell["improvement"]) > DARK * scale else "black"
        text = _cell_text(cell)
        axes.text(column + 0.5, row + 0.5, text, color=colour, ha="center", va="center", fontsize=8, linespacing=1.4)
    axes.set_xlabel("rows per batch")
    axes.set_ylabel("concurrent requests")
    axes.set_xticklabels([f"{rows:,}" for rows in improvement.columns])
    axes.tick_params(left=False, bottom=False)
    axes.set_yticklabels(axes.get_yticklabels(), rotation=0)
    _finish(figure, axes, f"Throughput of async against sync, {delay_title(delay)}", description)
    return figure


def throughput(compared: pd.DataFrame, result: pd.DataFrame, description: Mapping[str, Any]) -> Figure:
    """Sync, async and limit of every cell: a row of axes per delay, a column per batch size."""
    delays = sorted(compared["delay_per_row"].unique())
    sizes = sorted(compared["rows_per_batch"].unique())
    figure, grid = plt.subplots(
        len(delays), len(sizes), figsize=(3.4 * len(sizes) + 0.8, 2.5 * len(delays) + 1.2), squeeze=False
    )
    for delay, row in zip(delays, grid, strict=True):
        for size, axes in zip(sizes, row, strict=True):
            at = {"delay_per_row": delay, "rows_per_batch": size}
            _bars(axes, _at(compared, at), _at(result, at))
            axes.set_title(f"{delay_title(delay)}, {size:,} rows per batch", fontsize=9)
        row[0].set_ylabel("MiB/s, all requests together", fontsize=9)
        row[0].set_ylim(bottom=0)
    for axes in grid[-1]:
        axes.set_xlabel("concurrent requests")
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper right", ncols=3, frameon=False, fontsize=9)
    _finish(figure, grid[0][0], "", description)
    figure.suptitle("Throughput, with the lowest and highest run", x=0.02, ha="left", fontsize=12)
    return figure


def _bars(axes: Axes, compared: pd.DataFrame, result: pd.DataFrame) -> None:
    width = 0.36
    for mode, colour, shift in (("sync", SYNC_COLOUR, -width / 2), ("async", ASYNC_COLOUR, width / 2)):
        rows = result[result["mode"] == mode].sort_values("concurrent_requests")
        average = rows["avg_throughput_mbps"]
        spread = [average - rows["min_throughput_mbps"], rows["max_throughput_mbps"] - average]
        places = [place + shift for place in range(len(rows))]
        axes.bar(places, average, width, label=mode, color=colour, yerr=spread, error_kw={"lw": 0.8, "capsize": 2})
    limits = compared.sort_values("concurrent_requests")
    for place, limit in enumerate(limits["limit_mbps"]):
        axes.hlines(limit, place - 0.46, place + 0.46, colors=LIMIT_COLOUR, lw=1.4, label="" if place else "limit")
    axes.set_xticks(range(len(limits)), [str(count) for count in limits["concurrent_requests"]])
    axes.spines[["top", "right"]].set_visible(False)


def _grid(cells: pd.DataFrame, column: str) -> pd.DataFrame:
    return cells.pivot(index="concurrent_requests", columns="rows_per_batch", values=column)


def _at(frame: pd.DataFrame, values: Mapping[str, float]) -> pd.DataFrame:
    for column, value in values.items():
        frame = frame[frame[column] == value]
    return frame


def _cell_text(cell: Mapping[Hashable, Any]) -> str:
    lines = [
        # One run says nothing of the noise.
        f"{cell['improvement']:+.1f} %" + (f" ± {cell['noise']:.1f}" if cell["noise"] else ""),
        "within the noise" if verdict(cell["improvement"], cell["noise"]) == NOISE else "",
        f"sync {cell['sync_of_limit']:.0f} % of limit",
        f"async {cell['async_of_limit']:.0f} %",
    ]
    if cell["success_rate"] < 1:
        lines.append(f"up to {100 * (1 - cell['success_rate']):.0f} % of requests failed")
    return "\n".join(line for line in lines if line)


def _signed(value: float, _place: int | None = None) -> str:
    return f"{value:+g}" if value else "0"


def _finish(figure: Figure, axes: Axes, title: str, description: Mapping[str, Any]) -> None:
    if title:
        axes.set_title(title, loc="left", fontsize=12)
    note = "Rows of 50 int32. Limit: the source's pace, or bare pyarrow in the same run"
    finish(figure, note, description, bool(title))


def finish(figure: Figure, note: str, description: Mapping[str, Any], has_title: bool = False) -> None:
    """Below all: what was measured, by which command, on what. Above all there is room unless an axes has the title."""
    command = f"run_benchmark.py --suite {description['suite']} --runs {description['runs']}"
    quick = " --quick (shows that it runs, not how fast)" if description["quick"] else ""
    foot = f"{note}. {command}{quick}. {machine.in_one_line(description['machine'])}"
    lines = textwrap.wrap(foot, int(FOOTER_CHARACTERS * figure.get_figwidth() / 10))
    height = (0.13 * len(lines) + 0.1) / figure.get_figheight()
    figure.text(0.02, 0.012, "\n".join(lines), fontsize=6.5, color="#555555", va="bottom", ha="left")
    figure.tight_layout(rect=(0, height, 1, 1 if has_title else 0.96))
