"""The plots of the suites `transfer` and `boards`, as matplotlib figures: frames in, figures out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import seaborn as sns
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from fastflight_benchmark.plots import ASYNC_COLOUR, LIMIT_COLOUR, SYNC_COLOUR, finish
from fastflight_benchmark.suites.transfer.contents import DOWNLOAD, UPLOAD
from fastflight_benchmark.suites.transfer.report import line_name, size_name
from fastflight_benchmark.suites.transfer.summary import STEADY, TUNING, WITHOUT_PACE

# Percent of the limit at which the colours of random bytes begin: what is below is far below.
PALEST, FULL = 50.0, 100.0
# And at which those of text end: deflate moves it faster than the line.
COMPRESSED = 400.0
# A cell's `status` where it was run, well or not.
RUN = "run"
MPREMOTE_COLOUR, TERMINAL_COLOUR = "#c44e52", "#e5a6a8"
LIMIT_NOTE = "Limit: the line rate, for uploads at most ring / round trip; without a pace a bare loop on the board"


def transfer(result: pd.DataFrame, description: Mapping[str, Any]) -> dict[str, Figure]:
    """All figures of a result of the suite `transfer`, by name."""
    steady = result[result["kind"] == STEADY]
    figures = {
        f"of_limit_{content}": of_limit(steady[steady["content"] == content], str(content), description)
        for content in steady["content"].unique()
    }
    compared = steady[steady["mpremote_seconds"].notna()]
    if len(compared):
        figures["mpremote"] = against_mpremote(compared, description)
    tuned = result[(result["kind"] == TUNING) & (result["status"] == RUN)]
    if len(tuned):
        figures["chunk_drain"] = chunk_and_drain(tuned, description)
    return figures


def of_limit(cells: pd.DataFrame, content: str, description: Mapping[str, Any]) -> Figure:
    """Percent of the limit by line and size: a heatmap for each operation and path."""
    lines = sorted(cells["line"].unique(), key=lambda line: line or float("inf"))
    sizes = sorted(cells["size"].unique())
    figure, grid = plt.subplots(2, 2, figsize=(11, 2.4 + 0.95 * len(lines)), sharex=True, sharey=True, squeeze=False)
    high = FULL if content == "random" else COMPRESSED
    for operation, row in zip((UPLOAD, DOWNLOAD), grid, strict=True):
        for path, axes in zip(("sync", "async"), row, strict=True):
            chosen = cells[(cells["operation"] == operation) & (cells["path"] == path)]
            shares = 100 * chosen.pivot(index="line", columns="size", values="of_limit").reindex(lines, columns=sizes)
            labels = shares.map(lambda share: f"{share:.0f} %")
            status = chosen.pivot(index="line", columns="size", values="status").reindex(lines, columns=sizes)
            sns.heatmap(
                shares.fillna(0),
                ax=axes,
                mask=shares.isna(),
                annot=labels,
                fmt="",
                cmap="YlGnBu",
                vmin=PALEST if high == FULL else 0,
                vmax=high,
                linewidths=1.5,
                annot_kws={"fontsize": 8.5},
                cbar=False,
            )
            _mark_missing(axes, shares, status.map(lambda said: "failed" if said == RUN else "not run"))
            axes.set_title(f"{operation}, {path}", loc="left", fontsize=10)
            axes.set_xlabel("")
            axes.set_ylabel("line, baud" if path == "sync" else "")
            axes.tick_params(left=False, bottom=False)
            axes.set_yticklabels([line_name(line) for line in lines], rotation=0)
            axes.set_xticklabels([size_name(size) for size in sizes])
    figure.suptitle(f"Transfers of {_content_name(content)}: percent of the limit", x=0.02, ha="left", fontsize=12)
    finish(figure, LIMIT_NOTE, description)
    return figure


def against_mpremote(cells: pd.DataFrame, description: Mapping[str, Any]) -> Figure:
    """Throughput of both paths and of mpremote, where it moved the same file; the figures are times mpremote."""
    keys = cells[["line", "content", "size"]].drop_duplicates()
    keys = keys.sort_values(["line", "content", "size"], key=lambda column: column.replace(WITHOUT_PACE, 10**9))
    names = [
        f"{_content_name(row['content'])}\n{size_name(row['size'])}\n{line_name(row['line'])}"
        for row in keys.to_dict("records")
    ]
    width = max(10.0, 2.2 + 0.95 * len(names))
    figure, grid = plt.subplots(2, 1, figsize=(width, 7.2), sharex=True, squeeze=False)
    for operation, axes in zip((UPLOAD, DOWNLOAD), grid[:, 0], strict=True):
        chosen = cells[cells["operation"] == operation]
        by_path = {
            path: keys.merge(chosen[chosen["path"] == path], on=list(keys.columns), how="left")
            for path in ("sync", "async")
        }
        peer = by_path["sync"].fillna(by_path["async"])
        bars = (
            ("fastflight, sync", by_path["sync"]["bytes_per_second"], SYNC_COLOUR),
            ("fastflight, async", by_path["async"]["bytes_per_second"], ASYNC_COLOUR),
            ("mpremote, on a serial port", peer["size"] / peer["mpremote_seconds"], MPREMOTE_COLOUR),
            ("mpremote, on a pseudo-terminal", peer["size"] / peer["mpremote_pty_seconds"], TERMINAL_COLOUR),
        )
        bar = 0.2
        for number, (label, values, colour) in enumerate(bars):
            axes.bar(
                [place + (number - 1.5) * bar for place in range(len(names))],
                values / 1e3,
                bar,
                label=label,
                color=colour,
            )
        highest = pd.concat([values for _, values, _ in bars[:2]], axis=1).max(axis=1)
        for place, (rate, times) in enumerate(zip(highest, by_path["async"]["vs_mpremote"], strict=True)):
            axes.text(
                place - bar,
                rate / 1e3 * 1.15,
                f"{times:,.0f}x" if times >= 100 else f"{times:.1f}x",
                ha="center",
                fontsize=8,
            )
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.margins(y=0.2)
        axes.set_ylabel(f"{operation}, kB/s", fontsize=9)
        axes.set_xticks(range(len(names)), names, fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper left", bbox_to_anchor=(0.01, 0.965), ncols=4, frameon=False, fontsize=9)
    figure.suptitle("Against mpremote, on the same line", x=0.02, ha="left", fontsize=12)
    note = f"Figures: async by mpremote on a serial port. mpremote {description['mpremote']}, by its Python interface"
    finish(figure, note, description)
    return figure


def chunk_and_drain(cells: pd.DataFrame, description: Mapping[str, Any]) -> Figure:
    """Percent of the limit of async uploads, by chunk and drain threshold: a heatmap for each line."""
    kinds = list(cells[["line", "size"]].drop_duplicates().sort_values("line").itertuples(index=False, name=None))
    figure, grid = plt.subplots(1, len(kinds), figsize=(1.2 + 5.2 * len(kinds), 4.4), squeeze=False)
    for (line, size), axes in zip(kinds, grid[0], strict=True):
        chosen = cells[(cells["line"] == line) & (cells["size"] == size)]
        shares = 100 * chosen.pivot(index="chunk", columns="drain", values="of_limit")
        sns.heatmap(
            shares, ax=axes, annot=True, fmt=".1f", cmap="YlGnBu", linewidths=1.5, vmin=PALEST, vmax=FULL, cbar=False
        )
        axes.set_title(f"{size_name(size)} random at {line_name(line)}", loc="left", fontsize=10)
        axes.set_xlabel("drain threshold, bytes")
        axes.set_ylabel("largest chunk, bytes")
        axes.set_yticklabels(axes.get_yticklabels(), rotation=0)
        axes.tick_params(left=False, bottom=False)
    figure.suptitle("Async uploads by chunk and drain: percent of the limit", x=0.02, ha="left", fontsize=12)
    finish(figure, LIMIT_NOTE, description)
    return figure


def boards(result: pd.DataFrame, description: Mapping[str, Any]) -> dict[str, Figure]:
    """Many boards at once: the share of the sum of their lines, with what it took."""
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
    # Where the boards needed the most of the cores that they share with what is measured.
    most = result.sort_values("boards_cpu_percent").to_dict("records")[-1]
    return (
        f"{scope['size']:,} random bytes to and from each board, lines of {scope['baud']}. "
        f"CPU: of a core. {most['boards']} boards themselves took up to {most['boards_cpu_percent']:.0f} %, "
        f"and {most['idle_percent']:.0f} % of all cores was idle then"
    )


def _mark_missing(axes: Axes, shares: pd.DataFrame, words: pd.DataFrame) -> None:
    for row, values in enumerate(shares.to_numpy()):
        for column, share in enumerate(values):
            if share != share:
                word = str(words.iat[row, column])
                axes.text(column + 0.5, row + 0.5, word, ha="center", va="center", fontsize=8, color="#777777")


def _content_name(content: str) -> str:
    names: Mapping[str, str] = {"random": "random bytes", "csv": "CSV", "python": "Python source"}
    return names.get(content, content)
