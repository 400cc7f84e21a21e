"""The plot of the suite `relay`: the throughput of each relay by the size of a read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from fastflight_benchmark.plots import ASYNC_COLOUR, LIMIT_COLOUR, SYNC_COLOUR, finish
from fastflight_benchmark.suites.relay.client import RAW
from fastflight_benchmark.suites.relay.relays import LIBRARY, OURS, PLAIN

STYLES: Mapping[str, tuple[str, str, str]] = {
    RAW: ("raw loopback, no relay", LIMIT_COLOUR, ":"),
    PLAIN: ("plain TCP relay", SYNC_COLOUR, "-"),
    OURS: ("the gateway's relay", ASYNC_COLOUR, "-"),
    LIBRARY: ("relay on websockets", "#d08a2e", "-"),
}
ELSEWHERE_COLOUR = "#b03a2e"


def relay(result: pd.DataFrame, description: Mapping[str, Any]) -> dict[str, Figure]:
    """Draw a row of axes for each chunk of the seeder, and a column for each size of transfer."""
    chunks, sizes = sorted(result["chunk_kb"].unique()), sorted(result["size_mb"].unique())
    figure, grid = plt.subplots(
        len(chunks), len(sizes), figsize=(4 * len(sizes) + 0.8, 3 * len(chunks) + 1.2), sharey=True, squeeze=False
    )
    for chunk, row in zip(chunks, grid, strict=True):
        for size, axes in zip(sizes, row, strict=True):
            cells = result[(result["chunk_kb"] == chunk) & (result["size_mb"] == size)].sort_values("read_kb")
            places = range(len(cells))
            for name, (label, colour, line) in STYLES.items():
                axes.plot(places, cells[f"{name}_mbps"], line, marker="o", ms=4, color=colour, label=label)
            elsewhere = [description["elsewhere"].get(str(read)) for read in cells["read_kb"]]
            label = "a JVM daemon: published, not measured here"
            axes.plot(places, elsewhere, "D", ms=4, color=ELSEWHERE_COLOUR, label=label)
            axes.set_xticks(places, [f"{read}" for read in cells["read_kb"]])
            axes.set_title(f"{size} MB, the seeder's chunks {chunk} KB", fontsize=9)
            axes.grid(axis="y", lw=0.4, alpha=0.5)
            axes.spines[["top", "right"]].set_visible(False)
    # After all lines are drawn: the axes share this scale, and a fixed scale would not adapt to later lines.
    grid[0][0].set_ylim(bottom=0)
    for axes in grid[-1]:
        axes.set_xlabel("KB of a read")
    for row in grid:
        row[0].set_ylabel("MiB/s")
    figure.suptitle("Throughput of relays", x=0.02, ha="left", fontsize=12)
    handles = grid[0][0].get_legend_handles_labels()
    figure.legend(*handles, loc="upper right", ncols=len(STYLES) + 1, frameon=False, fontsize=8)
    finish(figure, "Medians of rounds; seeder, relays and client are processes on one computer", description)
    return {"throughput": figure}
