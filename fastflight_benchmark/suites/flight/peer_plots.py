"""Plots of fastflight beside peers: throughput by batch size, time to the first row, small requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from fastflight_benchmark.contenders import AIO, ASYNC, BARE, NAMESAKE_ASYNC, NAMESAKE_SYNC, SYNC
from fastflight_benchmark.plots import ASYNC_COLOUR, SYNC_COLOUR, finish
from fastflight_benchmark.report import batch_title

# fastflight in blue, the reference in black, other projects in brown. Markers and places distinguish them too.
COLOURS = {
    BARE: "#1a1a1a",
    SYNC: "#7fb0d6",
    ASYNC: ASYNC_COLOUR,
    NAMESAKE_SYNC: "#d9b382",
    NAMESAKE_ASYNC: "#b5651d",
    AIO: SYNC_COLOUR,
}
TITLES = {
    BARE: "bare pyarrow",
    SYNC: "fastflight sync",
    ASYNC: "fastflight async",
    NAMESAKE_SYNC: "FastFlight 0.4 sync",
    NAMESAKE_ASYNC: "FastFlight 0.4 async",
    AIO: "grpc.aio, pre-encoded",
}
MARKERS = {BARE: "s", SYNC: "o", ASYNC: "o", NAMESAKE_SYNC: "^", NAMESAKE_ASYNC: "^", AIO: "x"}
# The height of the axes, as a multiple of the highest bar: room for two lines of text.
HEADROOM = 1.24


def peers(servers: pd.DataFrame, description: Mapping[str, Any]) -> Figure:
    """Draw throughput without delay: a column of axes per batch size, a row for the fewest and the most readers."""
    free = _free(servers)
    sizes = sorted(free["rows_per_batch"].unique())
    readers = sorted({free["concurrent_requests"].min(), free["concurrent_requests"].max()})
    names = _measured_servers(free)
    figure, grid = plt.subplots(
        len(readers), len(sizes), figsize=(2.9 * len(sizes) + 1.0, 2.5 * len(readers) + 1.3), squeeze=False
    )
    for count, row in zip(readers, grid, strict=True):
        for size, axes in zip(sizes, row, strict=True):
            cell = free[(free["rows_per_batch"] == size) & (free["concurrent_requests"] == count)]
            _bars(axes, cell, names)
            axes.set_title(f"batches of {batch_title(size)}, {_counted(count, 'reader')}", fontsize=9)
        row[0].set_ylabel("MiB/s, all readers", fontsize=9)
    _head(figure, grid[0][0], "Throughput without delay, and how many times that of bare pyarrow", names)
    note = "Median, lowest and highest run; ×: of the medians, where the tables have medians of pairs. Rows of 50 int32"
    finish(figure, note, description)
    return figure


def first_batch(servers: pd.DataFrame, description: Mapping[str, Any]) -> Figure:
    """Draw milliseconds from a request to its first row, without delay, by number of readers."""
    free = _free(servers)
    sizes = sorted(free["rows_per_batch"].unique())
    names = _measured_servers(free)
    figure, (row,) = plt.subplots(1, len(sizes), figsize=(2.9 * len(sizes) + 1.0, 3.6), sharey=True, squeeze=False)
    for size, axes in zip(sizes, row, strict=True):
        for name in names:
            of = free[(free["rows_per_batch"] == size) & (free["mode"] == name)].sort_values("concurrent_requests")
            _line(axes, name, of["concurrent_requests"], 1e3 * of["first_batch_seconds"])
        _logarithmic(axes)
        _set_ticks(axes, sorted(free["concurrent_requests"].unique()), "readers at once")
        axes.set_title(f"batches of {batch_title(size)}", fontsize=9)
    row[0].set_ylabel("ms to the first row, median", fontsize=9)
    _head(figure, row[0], "Time to the first row, without delay", names)
    finish(figure, "All readers ask at the same moment. Rows of 50 int32", description)
    return figure


def requests(result: pd.DataFrame, description: Mapping[str, Any]) -> dict[str, Figure]:
    """Draw small requests per second and their p99: a row of axes per operation, two columns per load."""
    operations = list(dict.fromkeys(result["operation"]))
    loads = list(dict.fromkeys(result["load"]))
    names = _measured_servers(result)
    figure, grid = plt.subplots(
        len(operations), 2 * len(loads), figsize=(6.2 * len(loads) + 0.6, 2.5 * len(operations) + 1.2), squeeze=False
    )
    for operation, row in zip(operations, grid, strict=True):
        for load, (rate, tail) in zip(loads, zip(row[::2], row[1::2], strict=True), strict=True):
            cells = result[(result["operation"] == operation) & (result["load"] == load)]
            for name in names:
                of = cells[cells["mode"] == name].sort_values("connections")
                _line(rate, name, of["connections"], of["per_second"])
                _line(tail, name, of["connections"], of["p99_ms"])
            counts = sorted(result["connections"].unique())
            _set_ticks(rate, counts, "connections")
            _set_ticks(tail, counts, "connections")
            rate.set_ylim(bottom=0)
            _logarithmic(tail)
            rate.set_title(f"{operation} per second (load: {load})", fontsize=9)
            tail.set_title(f"{operation}, p99 in ms (load: {load})", fontsize=9)
    _head(figure, grid[0][0], "Small requests", names)
    finish(figure, "Medians. bare pyarrow and grpc.aio give answers that were made before", description)
    return {"rates": figure}


def _free(servers: pd.DataFrame) -> pd.DataFrame:
    return servers[(servers["delay_per_row"] == 0) & (servers["variant"] == "default")]


def _measured_servers(frame: pd.DataFrame) -> Sequence[str]:
    """Return the measured servers, in the order of the legend."""
    measured = set(frame["mode"])
    return [name for name in TITLES if name in measured]


def _bars(axes: Axes, cell: pd.DataFrame, names: Sequence[str]) -> None:
    rows = {str(row["mode"]): row for row in cell.to_dict("records")}
    for place, name in enumerate(name for name in names if name in rows):
        height, lowest, highest = (float(rows[name][f"{part}throughput_mbps"]) for part in ("", "min_", "max_"))
        spread = [[height - lowest], [highest - height]]
        axes.bar(
            place, height, 0.8, color=COLOURS[name], label=TITLES[name], yerr=spread, error_kw={"lw": 0.8, "capsize": 2}
        )
        text = f"{height:,.0f}"
        if BARE in rows and name != BARE:
            text += f"\n×{height / float(rows[BARE]['throughput_mbps']):.2f}"
        axes.text(place, highest, text, ha="center", va="bottom", fontsize=7, linespacing=1.1)
    if rows:
        axes.set_ylim(0, HEADROOM * max(float(row["max_throughput_mbps"]) for row in rows.values()))
    axes.set_xticks([])
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def _line(axes: Axes, name: str, x: pd.Series[Any], y: pd.Series[float]) -> None:
    axes.plot(x, y, marker=MARKERS[name], ms=4.5, lw=1.3, color=COLOURS[name], label=TITLES[name])


def _set_ticks(axes: Axes, counts: Sequence[int], label: str) -> None:
    """Use a logarithmic axis with these numbers as ticks."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(label, fontsize=8)
    axes.tick_params(labelsize=8)
    axes.grid(axis="y", lw=0.4, alpha=0.5)
    axes.spines[["top", "right"]].set_visible(False)


def _logarithmic(axes: Axes) -> None:
    """Use a logarithmic axis with plain numbers."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(_plain)
    axes.yaxis.set_minor_locator(NullLocator())


def _head(figure: Figure, axes: Axes, title: str, names: Sequence[str]) -> None:
    """Write the title, and below it the legend."""
    height = figure.get_figheight()
    figure.suptitle(title, x=0.02, y=1 - 0.1 / height, ha="left", va="top", fontsize=12)
    handles, labels = axes.get_legend_handles_labels()
    place = (0.012, 1 - 0.32 / height)
    figure.legend(
        handles,
        labels,
        loc="upper left",
        bbox_to_anchor=place,
        ncols=len(names),
        frameon=False,
        fontsize=8,
        borderpad=0,
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _plain(value: float, _place: float) -> str:
    return f"{value:g}"
