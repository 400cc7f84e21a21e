"""The plots of a result, as matplotlib figures.

All heatmaps use the same scale of colours: white is equal, blue is faster, red is slower. The scale is symmetric, so a
loss is as visible as a win, and a colour means the same in every plot.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib

matplotlib.use("Agg")  # before pyplot: there may be no display

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from fastflight_benchmark import machine
from fastflight_benchmark.contenders import ASYNC, BARE, NAMESAKE_ASYNC, NAMESAKE_SYNC, SYNC
from fastflight_benchmark.result import NEUTRAL, Result, Row, difference, ratios

# Percent at which the colours of all heatmaps end, so that one cell far above (small batches that are joined) does not
# make the others pale.
SCALE = 50.0
# Blue for better and red for worse: colour-blind readers can distinguish them.
COLOURS = "RdBu"
# A cell whose difference is within the spread of its runs.
MUTED, MUTED_TEXT = "#ececec", "#555555"
# Above this share of the scale, a heatmap's colour needs white letters.
DARK = 0.6
LIMIT, LIMIT_COLOUR = "limit", "#1a1a1a"
CONTENDER_COLOURS = {
    BARE: "#1a1a1a",
    SYNC: "#7fb0d6",
    ASYNC: "#2f6f9f",
    NAMESAKE_SYNC: "#d9b382",
    NAMESAKE_ASYNC: "#b5651d",
    LIMIT: "#999999",
}
TITLES = {
    BARE: "bare pyarrow",
    SYNC: "fastflight sync",
    ASYNC: "fastflight async",
    NAMESAKE_SYNC: "FastFlight 0.4 sync",
    NAMESAKE_ASYNC: "FastFlight 0.4 async",
    LIMIT: "limit: the source's pace, or bare pyarrow",
}
# Characters of the footer that fit into a width of ten inches.
FOOTER_CHARACTERS = 185
DPI = 150
# The width of a contender in a legend.
LEGEND_INCHES = 2.4
# Cells of a plot of bars. More cannot be read.
MOST_CELLS = 24


def figures(result: Result) -> dict[str, Figure]:
    """Return the plots of a result, by the end of their names."""
    suite = str(result.description["suite"])
    return PLOTS.get(suite, _bars)(result)


def _flight(result: Result) -> dict[str, Figure]:
    cells = result.cells("throughput", variant="default")
    delays = sorted({dict(cell)["delay"] for cell in cells})
    drawn: dict[str, Figure] = {}
    for delay in delays:
        both = {
            (int(dict(cell)["clients"]), int(dict(cell)["rows"])): by
            for cell, by in cells.items()
            if dict(cell)["delay"] == delay and {SYNC, ASYNC} <= by.keys()
        }
        if both:
            drawn[f"heatmap_{delay}us"] = heatmap(both, int(delay), result.description)
    free = {cell: by for cell, by in cells.items() if not dict(cell)["delay"]}
    for delay in delays:
        paced = {cell: by for cell, by in cells.items() if delay and dict(cell)["delay"] == delay}
        if paced:
            columns = [("clients", "throughput", "MiB/s of all readers")]
            drawn[f"limits_{delay}us"] = _lines(result, paced, "rows", columns, f"Throughput, {delay} µs for a row")
    if free:
        drawn["peers"] = _lines(
            result, free, "rows", [("clients", "throughput", "MiB/s of all readers")], "Throughput without delay"
        )
        drawn["first_batch"] = _lines(
            result, free, "rows", [("clients", "first row", "ms to the first row")], "Time to the first row, no delay"
        )
    return drawn


def _requests(result: Result) -> dict[str, Figure]:
    columns = [("connections", "rate", "per second"), ("connections", "99 %", "99 % within, ms")]
    cells = {
        cell: by for cell, by in result.cells("rate").items() if dict(cell)["load"] == "flight-client"
    } or result.cells("rate")
    return {"rates": _lines(result, cells, "operation", columns, "Small requests")}


def _signed(percent: float) -> str:
    return f"{percent:+.0f}" if round(percent) else "0"


def heatmap(cells: Mapping[tuple[int, int], Mapping[str, Row]], delay: int, description: Mapping[str, Any]) -> Figure:
    """Draw async against sync at one delay: rows are clients at once, columns are rows in a batch."""
    clients = sorted({cell[0] for cell in cells})
    sizes = sorted({cell[1] for cell in cells})
    figure, axes = plt.subplots(figsize=(1.9 * len(sizes) + 2.2, 0.95 * len(clients) + 2.0))
    colours, norm = plt.get_cmap(COLOURS), Normalize(-SCALE, SCALE)
    for (count, rows), by in cells.items():
        gain, spread = difference(by[SYNC], by[ASYNC])
        x, y, is_muted = sizes.index(rows), clients.index(count), abs(gain) <= spread
        face = MUTED if is_muted else colours(norm(gain))
        axes.add_patch(Rectangle((x, y), 1, 1, facecolor=face, edgecolor="white", lw=2))
        ink = MUTED_TEXT if is_muted else "white" if abs(gain) > DARK * SCALE else "black"
        axes.text(x + 0.5, y + 0.44, _signed(gain), color=ink, ha="center", va="center", fontsize=20)
        if spread:
            axes.text(x + 0.5, y + 0.82, f"± {spread:.0f}", color=ink, ha="center", va="center", fontsize=8)
    axes.set_xlim(0, len(sizes))
    axes.set_ylim(len(clients), 0)
    axes.set_xticks([place + 0.5 for place in range(len(sizes))], [f"{rows:,}" for rows in sizes], fontsize=12)
    axes.set_yticks([place + 0.5 for place in range(len(clients))], [str(count) for count in clients], fontsize=12)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.set_xlabel("rows in a batch", fontsize=12)
    axes.set_ylabel("clients at once", fontsize=12)
    bar = figure.colorbar(ScalarMappable(norm, colours), ax=axes, extend="both", pad=0.03)
    bar.ax.yaxis.set_major_formatter(lambda percent, _: _signed(percent))
    bar.outline.set_visible(False)
    pace = f"{delay} µs for a row" if delay else "no delay"
    axes.set_title(f"async to sync, % of throughput, {pace}", loc="left", fontsize=14)
    _finish(figure, "Blue: async is faster. Grey: within the spread of the runs (±)", description)
    return figure


def _lines(
    result: Result,
    cells: Mapping[tuple[Any, ...], object],
    rows_by: str,
    columns: Sequence[tuple[str, str, str]],
    title: str,
) -> Figure:
    """Draw a line for each contender: a row of axes for each value of `rows_by`, a column for each measure."""
    values = list(dict.fromkeys(dict(cell)[rows_by] for cell in cells))
    wide = len(columns) == 1
    shape = (1, len(values)) if wide else (len(values), len(columns))
    figure, grid = plt.subplots(*shape, figsize=(3.1 * shape[1] + 1.2, 2.7 * shape[0] + 1.3), squeeze=False)
    for place, value in enumerate(values):
        for number, (x, measure, unit) in enumerate(columns):
            axes = grid[0][place] if wide else grid[place][number]
            names = [name for name in CONTENDER_COLOURS if name != LIMIT or dict(next(iter(cells))).get("delay")]
            for name in names:
                found = [
                    (float(dict(cell)[x]), row[name].median)
                    for cell, row in result.cells(measure).items()
                    if cell in cells and dict(cell)[rows_by] == value and name in row
                ]
                if found:
                    style: dict[str, Any] = {"ls": ":" if name == LIMIT else "-", "color": CONTENDER_COLOURS[name]}
                    axes.plot(*zip(*sorted(found), strict=True), marker="o", ms=4, label=TITLES[name], **style)
            _scaled(axes, x, sorted({float(dict(cell)[x]) for cell in cells}))
            named = f"{value:,} {rows_by}" if isinstance(value, int) else str(value)
            axes.set_title(f"{named}: {unit}" if not wide else named, fontsize=10)
    if wide:
        grid[0][0].set_ylabel(columns[0][2])
    _legend(figure, grid[0][0], title)
    _finish(figure, "Medians of all runs", result.description)
    return figure


def _bars(result: Result) -> dict[str, Figure]:
    """Draw, for each measure that is better or worse, the ratio of each contender to the reference of its cell."""
    drawn: dict[str, Figure] = {}
    pairs = [
        (row, reference)
        for row, reference in result.compared()
        if reference is not None and row.better != NEUTRAL and ratios(row, reference)
    ]
    for measure in dict.fromkeys(row.measure for row, _ in pairs):
        of = [(row, reference) for row, reference in pairs if row.measure == measure][:MOST_CELLS]
        figure, axes = plt.subplots(figsize=(10, 0.32 * len(of) + 1.6))
        for place, (row, reference) in enumerate(of):
            found = ratios(row, reference)
            colour = CONTENDER_COLOURS[ASYNC] if row.contender in result.description["ours"] else "#b0b0b0"
            axes.barh(place, sorted(found)[len(found) // 2], color=colour)
            axes.hlines(place, min(found), max(found), colors="#333333", lw=1)
        labels = [
            f"{', '.join(map(str, row.cell.values()))}: {row.contender} of {reference.contender}"
            for row, reference in of
        ]
        axes.set_yticks(range(len(of)), labels, fontsize=8)
        axes.invert_yaxis()
        axes.axvline(1, color=LIMIT_COLOUR, lw=1)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_title(f"{measure}, by that of the reference ({of[0][0].better} is better)", loc="left", fontsize=12)
        _finish(figure, "Median, lowest and highest of the rounds", result.description)
        drawn[measure.replace(" ", "_")] = figure
    return drawn


def _scaled(axes: Axes, label: str, ticks: Sequence[float]) -> None:
    """Use a logarithmic axis with these ticks."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], fontsize=8)
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_xlabel(f"{label} at once" if label == "clients" else label, fontsize=9)
    axes.tick_params(labelsize=8)
    axes.grid(axis="y", lw=0.4, alpha=0.5)
    axes.spines[["top", "right"]].set_visible(False)


def _legend(figure: Figure, axes: Axes, title: str) -> None:
    """Write the title, and below it the legend."""
    height = figure.get_figheight()
    figure.suptitle(title, x=0.02, y=1 - 0.1 / height, ha="left", va="top", fontsize=13)
    handles, labels = axes.get_legend_handles_labels()
    place = (0.012, 1 - 0.36 / height)
    columns = int(figure.get_figwidth() / LEGEND_INCHES)
    figure.legend(handles, labels, loc="upper left", bbox_to_anchor=place, ncols=columns, frameon=False, fontsize=9)


def _finish(figure: Figure, note: str, description: Mapping[str, Any]) -> None:
    """Write `note`, the command and the machine below the plot."""
    command = f"run_benchmark.py --suite {description['suite']} --runs {description['runs']}"
    quick = " --quick (shows that it runs, not how fast)" if description["quick"] else ""
    foot = f"{note}. {command}{quick}. {machine.in_one_line(description['machine'])}"
    lines = textwrap.wrap(foot, int(FOOTER_CHARACTERS * figure.get_figwidth() / 10))
    height = figure.get_figheight()
    figure.text(0.02, 0.012, "\n".join(lines), fontsize=6.5, color="#555555", va="bottom", ha="left")
    top = 1 - 0.62 / height if figure.legends else 1.0
    figure.tight_layout(rect=(0, (0.13 * len(lines) + 0.1) / height, 1, top))


PLOTS: Mapping[str, Callable[[Result], dict[str, Figure]]] = {"flight": _flight, "requests": _requests}
