"""The plots of the suites `transfer` and `boards`, as matplotlib figures: frames in, figures out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from fastflight_benchmark.plots import ASYNC_COLOUR, LIMIT_COLOUR, SYNC_COLOUR, draw_cells, finish
from fastflight_benchmark.suites.transfer.contents import ASYNC, DOWNLOAD, SYNC, UPLOAD
from fastflight_benchmark.suites.transfer.report import line_name, size_name
from fastflight_benchmark.suites.transfer.summary import STEADY, TUNING, WITHOUT_PACE

# The `status` of a cell that was run, whether it failed or not.
RUN = "run"
MPREMOTE_COLOUR, TERMINAL_COLOUR = "#c44e52", "#e5a6a8"
# Bars against mpremote: label, path, column and colour. The pale bars are for mpremote on a pseudo-terminal, where it
# makes no pauses.
TIMES = (
    ("sync", SYNC, "vs_mpremote", SYNC_COLOUR),
    ("async", ASYNC, "vs_mpremote", ASYNC_COLOUR),
    ("sync, mpremote without its pauses", SYNC, "vs_mpremote_pty", "#c9c9c9"),
    ("async, mpremote without its pauses", ASYNC, "vs_mpremote_pty", "#9dc3e0"),
)
BAR = 0.2
LIMIT_NOTE = (
    "White: at the limit, blue: above (deflate), red: below. Limit: the line rate, for uploads at most "
    "ring / round trip; without a pace there is a reference instead, a bare loop on the board"
)


def transfer(result: pd.DataFrame, description: Mapping[str, Any]) -> dict[str, Figure]:
    """Return all plots of a result of the suite `transfer`, by name."""
    steady = result[result["kind"] == STEADY]
    figures: dict[str, Figure] = {}
    compared = steady[steady["mpremote_seconds"].notna()]
    paced = compared["line"] != WITHOUT_PACE
    if paced.any():
        figures["mpremote"] = times_mpremote(compared[paced], description)
    if not paced.all():
        figures["mpremote_without_pace"] = rates_without_pace(compared[~paced], description)
    figures |= {
        f"of_limit_{content}": of_limit(steady[steady["content"] == content], str(content), description)
        for content in steady["content"].unique()
    }
    tuned = result[(result["kind"] == TUNING) & (result["status"] == RUN)]
    if len(tuned):
        figures["chunk_drain"] = chunk_and_drain(tuned, description)
    return figures


def of_limit(cells: pd.DataFrame, content: str, description: Mapping[str, Any]) -> Figure:
    """Draw percent of the limit by line and size: a heatmap for each operation and path."""
    lines = sorted(cells["line"].unique(), key=lambda line: line or float("inf"))
    sizes = sorted(cells["size"].unique())
    figure, grid = plt.subplots(2, 2, figsize=(11, 2.4 + 0.95 * len(lines)), sharex=True, sharey=True, squeeze=False)
    for operation, row in zip((UPLOAD, DOWNLOAD), grid, strict=True):
        for path, axes in zip(("sync", "async"), row, strict=True):
            chosen = cells[(cells["operation"] == operation) & (cells["path"] == path)]
            shares = 100 * chosen.pivot(index="line", columns="size", values="of_limit").reindex(lines, columns=sizes)
            status = chosen.pivot(index="line", columns="size", values="status").reindex(lines, columns=sizes)
            missing = status.map(lambda value: "failed" if value == RUN else "not run")
            draw_cells(axes, shares - 100, shares.map(lambda share: f"{share:.0f} %").where(shares.notna(), missing))
            axes.set_title(f"{operation}, {path}", loc="left", fontsize=10)
            axes.set_xlabel("")
            axes.set_ylabel("line, baud" if path == "sync" else "")
            axes.set_yticklabels([line_name(line) for line in lines], rotation=0)
            axes.set_xticklabels([size_name(size) for size in sizes])
    figure.suptitle(f"Transfers of {_content_name(content)}: percent of the limit", x=0.02, ha="left", fontsize=12)
    finish(figure, LIMIT_NOTE, description)
    return figure


def times_mpremote(cells: pd.DataFrame, description: Mapping[str, Any]) -> Figure:
    """Draw how many times as fast as mpremote both paths are, on lines at the rates of real boards."""
    figure, grid, names = _operations(cells)
    for operation, axes in grid:
        for number, (label, path, column, colour) in enumerate(TIMES):
            times = _of_path(cells, operation, path, names)[column]
            places = [place + (number - 1.5) * BAR for place in range(len(names))]
            axes.bar(places, times, BAR, label=label, color=colour)
            for place, value in zip(places, times, strict=True):
                if not math.isnan(value):
                    axes.text(place, value, f"{value:.1f}", ha="center", va="bottom", fontsize=6.5)
        axes.axhline(1, color=LIMIT_COLOUR, lw=1)
        axes.margins(y=0.12)
        axes.set_ylabel(f"{operation}, times mpremote", fontsize=9)
    _legend(figure, grid[0][1], "Times as fast as mpremote, on the same line")
    finish(
        figure,
        f"Line at 1: as fast as mpremote. Pale: beside mpremote on a pseudo-terminal. {_mpremote_note(description)}",
        description,
    )
    return figure


def rates_without_pace(cells: pd.DataFrame, description: Mapping[str, Any]) -> Figure:
    """Draw kB/s of both paths and of mpremote on a line without a pace, where only the processes limit the rate."""
    figure, grid, names = _operations(cells)
    for operation, axes in grid:
        ours = {path: _of_path(cells, operation, path, names) for path in (SYNC, ASYNC)}
        peer = ours[SYNC].fillna(ours[ASYNC])
        bars = (
            ("fastflight, sync", ours[SYNC]["bytes_per_second"], SYNC_COLOUR),
            ("fastflight, async", ours[ASYNC]["bytes_per_second"], ASYNC_COLOUR),
            ("mpremote, on a serial port", peer["size"] / peer["mpremote_seconds"], MPREMOTE_COLOUR),
            ("mpremote, on a pseudo-terminal", peer["size"] / peer["mpremote_pty_seconds"], TERMINAL_COLOUR),
        )
        for number, (label, rates, colour) in enumerate(bars):
            places = [place + (number - 1.5) * BAR for place in range(len(names))]
            axes.bar(places, rates / 1e3, BAR, label=label, color=colour)
            for place, rate in zip(places, rates / 1e3, strict=True):
                if not math.isnan(rate):
                    axes.text(place, rate * 1.05, f"{rate:,.0f}", ha="center", va="bottom", fontsize=6.5)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.margins(y=0.15)
        axes.set_ylabel(f"{operation}, kB/s", fontsize=9)
    _legend(figure, grid[0][1], "Without a pace: processes on one computer, faster than any board")
    finish(figure, _mpremote_note(description), description)
    return figure


def _operations(cells: pd.DataFrame) -> tuple[Figure, Sequence[tuple[str, Axes]], pd.DataFrame]:
    """Return a figure, its axes for uploads and downloads, and a frame with a row for each place on the axes."""
    moved = cells[["line", "content", "size"]].drop_duplicates().sort_values(["line", "content", "size"])
    names = [
        f"{_content_name(row['content'])}\n{size_name(row['size'])}\n{line_name(row['line'])}"
        for row in moved.to_dict("records")
    ]
    figure, grid = plt.subplots(2, 1, figsize=(max(10.0, 2.2 + 1.1 * len(names)), 7.2), sharex=True)
    for axes in grid:
        axes.set_xticks(range(len(names)), names, fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, list(zip((UPLOAD, DOWNLOAD), grid, strict=True)), moved


def _of_path(cells: pd.DataFrame, operation: str, path: str, moved: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of one operation and path, in the order of `moved`. Cells that were not run have no values."""
    chosen = cells[(cells["operation"] == operation) & (cells["path"] == path)]
    return moved.merge(chosen, on=list(moved.columns), how="left")


def _legend(figure: Figure, axes: Axes, title: str) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper left", bbox_to_anchor=(0.01, 0.965), ncols=4, frameon=False, fontsize=9)
    figure.suptitle(title, x=0.02, ha="left", fontsize=12)


def _mpremote_note(description: Mapping[str, Any]) -> str:
    return f"mpremote {description['mpremote']}, by its Python interface"


def chunk_and_drain(cells: pd.DataFrame, description: Mapping[str, Any]) -> Figure:
    """Draw percent of the limit of async uploads, by chunk and drain threshold: a heatmap for each line."""
    kinds = list(cells[["line", "size"]].drop_duplicates().sort_values("line").itertuples(index=False, name=None))
    figure, grid = plt.subplots(1, len(kinds), figsize=(1.2 + 5.2 * len(kinds), 4.4), squeeze=False)
    for (line, size), axes in zip(kinds, grid[0], strict=True):
        chosen = cells[(cells["line"] == line) & (cells["size"] == size)]
        shares = 100 * chosen.pivot(index="chunk", columns="drain", values="of_limit")
        draw_cells(axes, shares - 100, shares.map(lambda share: f"{share:.1f}"))
        axes.set_title(f"{size_name(size)} random at {line_name(line)}", loc="left", fontsize=10)
        axes.set_xlabel("drain threshold, bytes")
        axes.set_ylabel("largest chunk, bytes")
        axes.set_yticklabels(axes.get_yticklabels(), rotation=0)
    figure.suptitle("Async uploads by chunk and drain: percent of the limit", x=0.02, ha="left", fontsize=12)
    finish(figure, LIMIT_NOTE, description)
    return figure


def boards(result: pd.DataFrame, description: Mapping[str, Any]) -> dict[str, Figure]:
    """Draw, for many boards at once, the share of the sum of their line rates, with threads, memory and CPU."""
    counts = sorted(result["boards"].unique())
    figure, grid = plt.subplots(1, 2, figsize=(11.5, 4.2), sharey=True, squeeze=False)
    for operation, axes in zip((UPLOAD, DOWNLOAD), grid[0], strict=True):
        for path, colour, shift in (("sync", SYNC_COLOUR, -0.2), ("async", ASYNC_COLOUR, 0.2)):
            rows = result[(result["operation"] == operation) & (result["path"] == path)].set_index("boards")
            rows = rows.reindex(counts)
            places = [place + shift for place in range(len(counts))]
            axes.bar(places, 100 * rows["of_lines"], 0.38, label=path, color=colour)
            for place, row in zip(places, rows.to_dict("records"), strict=True):
                lines = [
                    f"{100 * row['of_lines']:.1f} %",
                    f"{row['threads']:.0f} threads",
                    f"{row['peak_mb']:.0f} MiB" if row["peak_mb"] == row["peak_mb"] else "",
                    f"CPU {row['cpu_percent']:.0f} %",
                ]
                text = "\n".join(filter(None, lines))
                axes.text(place, 100 * row["of_lines"] - 2, text, ha="center", va="top", fontsize=7, color="white")
        axes.axhline(100, color=LIMIT_COLOUR, lw=1.2)
        axes.set_xticks(range(len(counts)), [f"{count}" for count in counts])
        axes.set_xlabel("boards")
        axes.set_title(operation, loc="left", fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
    grid[0, 0].set_ylabel("percent of the sum of the lines")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper right", ncols=2, frameon=False, fontsize=9)
    figure.suptitle("Many boards through one process", x=0.02, ha="left", fontsize=12)
    finish(figure, _boards_note(result, description), description)
    return {"of_lines": figure}


def _boards_note(result: pd.DataFrame, description: Mapping[str, Any]) -> str:
    scope = description["scope"]
    # The row in which the boards used the most processor time; they share the cores with the measured process.
    most = result.sort_values("boards_cpu_percent").to_dict("records")[-1]
    return (
        f"{scope['size']:,} random bytes to and from each board, lines of {scope['baud']}. "
        f"CPU: of a core. {most['boards']} boards themselves took up to {most['boards_cpu_percent']:.0f} %, "
        f"and {most['idle_percent']:.0f} % of all cores was idle then"
    )


def _content_name(content: str) -> str:
    names: Mapping[str, str] = {"random": "random bytes", "csv": "CSV", "python": "Python source"}
    return names.get(content, content)
