"""The plots of a flight result, as matplotlib figures: frames in, figures out.

All heatmaps use the same scale of colours (`draw_cells`): white is equal, blue is more, red is less. The scale is
symmetric, so a loss is as visible as a win, and a colour means the same in every plot.
"""

from __future__ import annotations

import math
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
from matplotlib.patches import Rectangle

from fastflight_benchmark import machine
from fastflight_benchmark.report import delay_title

# Percent at which the colours of all heatmaps end, so that one cell far above (small batches that are joined) does not
# make the others pale. The bar of colours has points at both ends.
SCALE = 50.0
# Blue for better and red for worse: colour-blind readers can distinguish them.
COLOURS = "vlag_r"
# A cell whose difference is within the spread of its runs, and its text.
MUTED, MUTED_TEXT = "#ececec", "#666666"
LIMIT, REFERENCE = "limit: the source's pace", "reference: bare pyarrow"
SYNC_COLOUR, ASYNC_COLOUR, LIMIT_COLOUR = "#8c8c8c", "#2f6f9f", "#1a1a1a"
# Characters of the footer that fit into a width of ten inches.
FOOTER_CHARACTERS = 185
DPI = 150
# The background of a number at a bar, which hides lines behind it.
BACKED: Mapping[str, Any] = {"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.85}
# Above this share of the scale, a heatmap's colour needs white letters.
DARK = 0.7


def heatmap(compared: pd.DataFrame, delay: float, description: Mapping[str, Any]) -> Figure:
    """Draw async against sync at one delay: rows are concurrent requests, columns are batch sizes."""
    cells = compared[compared["delay_per_row"] == delay]
    improvement = _grid(cells, "improvement")
    muted = improvement.abs() <= _grid(cells, "noise")
    texts = _grid(cells.assign(text=[_cell_text(cell) for cell in cells.to_dict("records")]), "text")
    figure, axes = plt.subplots(figsize=(8.6, 1.9 + 0.95 * len(improvement)))
    draw_cells(axes, improvement, texts, muted, label="async to sync, % (blue: async faster)")
    axes.set_xlabel("rows per batch")
    axes.set_ylabel("concurrent requests")
    axes.set_xticklabels([f"{rows:,}" for rows in improvement.columns])
    axes.set_yticklabels(axes.get_yticklabels(), rotation=0)
    _finish(figure, axes, f"Throughput of async against sync, {delay_title(delay)}", description)
    return figure


def draw_cells(
    axes: Axes, difference: pd.DataFrame, texts: pd.DataFrame, muted: pd.DataFrame | None = None, label: str = ""
) -> None:
    """Colour the cells by `difference` in percent, grey where `muted`, and write `texts` into them.

    With a `label` there is a bar of colours. A cell without a value stays white.
    """
    grey = difference.isna() & False if muted is None else muted
    sns.heatmap(
        difference.mask(grey),
        ax=axes,
        cmap=COLOURS,
        vmin=-SCALE,
        vmax=SCALE,
        linewidths=1.5,
        cbar=bool(label),
        cbar_kws={"label": label, "format": _signed, "pad": 0.03, "extend": "both"} if label else None,
    )
    for row, values in enumerate(difference.to_numpy()):
        for column, value in enumerate(values):
            is_grey = bool(grey.iat[row, column])
            if is_grey:
                axes.add_patch(Rectangle((column, row), 1, 1, facecolor=MUTED, edgecolor="white", lw=1.5))
            unknown = is_grey or math.isnan(value)
            colour = MUTED_TEXT if unknown else "white" if abs(value) > DARK * SCALE else "black"
            axes.text(
                column + 0.5,
                row + 0.5,
                str(texts.iat[row, column]),
                color=colour,
                ha="center",
                va="center",
                fontsize=8,
                linespacing=1.4,
            )
    axes.tick_params(left=False, bottom=False)


def throughput(compared: pd.DataFrame, result: pd.DataFrame, description: Mapping[str, Any]) -> Figure:
    """Draw sync and async of every cell, with limit and reference: a row of axes per delay, a column per batch size."""
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
    # The first axes of a delay may have no limit, or no reference.
    named = {
        label: handle for axes in grid.flat for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(list(named.values()), list(named), loc="upper right", ncols=4, frameon=False, fontsize=9)
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
    cells = compared.sort_values("concurrent_requests")
    for place, cell in enumerate(cells.to_dict("records")):
        paced, ends = _paced(cell), (place - 0.46, place + 0.46)
        axes.hlines(
            cell["limit_mbps"],
            *ends,
            colors=LIMIT_COLOUR,
            lw=1.4,
            linestyles="-" if paced else "--",
            label=LIMIT if paced else REFERENCE,
        )
    axes.set_xticks(range(len(cells)), [str(count) for count in cells["concurrent_requests"]])
    axes.spines[["top", "right"]].set_visible(False)


def _grid(cells: pd.DataFrame, column: str) -> pd.DataFrame:
    return cells.pivot(index="concurrent_requests", columns="rows_per_batch", values=column)


def _at(frame: pd.DataFrame, values: Mapping[str, float]) -> pd.DataFrame:
    for column, value in values.items():
        frame = frame[frame[column] == value]
    return frame


def _cell_text(cell: Mapping[Hashable, Any]) -> str:
    lines = [
        # A single run has no noise.
        f"{cell['improvement']:+.1f} %" + (f" ± {cell['noise']:.1f}" if cell["noise"] else ""),
        f"of {'limit' if _paced(cell) else 'reference'}: sync {cell['sync_of_limit']:.0f} %,",
        f"async {cell['async_of_limit']:.0f} %",
    ]
    if cell["success_rate"] < 1:
        lines.append(f"up to {100 * (1 - cell['success_rate']):.0f} % of requests failed")
    return "\n".join(lines)


def _paced(cell: Mapping[Hashable, Any]) -> bool:
    """Whether the source's own pace is the limit of the cell, which nothing can exceed, and not bare pyarrow."""
    return bool(cell["ceiling_mbps"] <= cell["limit_mbps"])


def _signed(value: float, _place: int | None = None) -> str:
    return f"{value:+g}" if value else "0"


def _finish(figure: Figure, axes: Axes, title: str, description: Mapping[str, Any]) -> None:
    if title:
        axes.set_title(title, loc="left", fontsize=12)
    note = (
        "Rows of 50 int32. Limit: the source's own pace, which nothing can pass. Reference: bare pyarrow in the same "
        "run, where that is slower. "
        + ("Grey: within the spread of the runs. " if title else "")
        + "Readers, server and sources share the cores: with many readers they wait for a core, and for each other"
    )
    finish(figure, note, description, bool(title))


def finish(figure: Figure, note: str, description: Mapping[str, Any], has_title: bool = False) -> None:
    """Write `note`, the command and the machine below the plot. Leave room for a title unless the axes have one."""
    command = f"run_benchmark.py --suite {description['suite']} --runs {description['runs']}"
    quick = " --quick (shows that it runs, not how fast)" if description["quick"] else ""
    foot = f"{note}. {command}{quick}. {machine.in_one_line(description['machine'])}"
    lines = textwrap.wrap(foot, int(FOOTER_CHARACTERS * figure.get_figwidth() / 10))
    height = (0.13 * len(lines) + 0.1) / figure.get_figheight()
    figure.text(0.02, 0.012, "\n".join(lines), fontsize=6.5, color="#555555", va="bottom", ha="left")
    figure.tight_layout(rect=(0, height, 1, 1 if has_title else 0.96))
