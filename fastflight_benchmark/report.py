"""Results on the screen. A loss is shown as plainly as a win: same place, same size, red instead of green."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fastflight_benchmark import summary

WIN, LOSS, NOISE = "green", "red", "default"
# Of different kinds of failure: the first ones say what is wrong.
SHOWN_FAILURES = 5
# The targets of the project, as shares of the bare peer: one reader, 10,000 rows a batch.
TARGET_CELL = ("default", 10_000, 1)
SYNC_TARGET, ASYNC_TARGET = 0.9, 0.8


def duration(seconds: float) -> str:
    """About how long, for people."""
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} s"


def delay_title(delay: float) -> str:
    """A delay as tables and plots name it."""
    return f"{delay * 1e6:g} µs per row" if delay else "no delay"


def verdict(improvement: float, noise: float) -> str:
    """The colour of a difference in percent: `NOISE` where the runs differ as much among themselves."""
    if math.isnan(improvement) or abs(improvement) <= noise:
        return NOISE
    return WIN if improvement > 0 else LOSS


def show_flight(console: Console, result: pd.DataFrame, ratios: pd.DataFrame) -> None:
    """The sweep, then the ratios to bare pyarrow."""
    compared = summary.compare(result)
    table = Table(title="Throughput of all requests together, MiB/s; limit: the source's pace, or bare pyarrow here")
    for heading in (
        "delay",
        "rows per batch",
        "requests",
        "sync",
        "async",
        "limit",
        "sync of limit",
        "async of limit",
        "async to sync",
    ):
        table.add_column(heading, justify="right")
    for _, cells in compared.groupby("delay_per_row"):
        for cell in cells.to_dict("records"):
            table.add_row(
                delay_title(cell["delay_per_row"]),
                f"{cell['rows_per_batch']:,}",
                f"{cell['concurrent_requests']}",
                f"{cell['sync_mbps']:.1f}",
                f"{cell['async_mbps']:.1f}",
                f"{cell['limit_mbps']:.1f}",
                f"{cell['sync_of_limit']:.0f} %",
                f"{cell['async_of_limit']:.0f} %",
                _difference(cell["improvement"], cell["noise"]),
            )
        table.add_section()
    console.print(table)
    beyond = [verdict(cell["improvement"], cell["noise"]) for cell in compared.to_dict("records")]
    console.print(
        f"async against sync in {len(beyond)} cells: {beyond.count(WIN)} better, {beyond.count(LOSS)} worse, "
        f"{beyond.count(NOISE)} within the noise (±: one standard deviation of the runs)\n"
    )
    _show_ratios(console, ratios)


def _difference(improvement: float, noise: float) -> Text:
    return Text(f"{improvement:+.1f} ± {noise:.1f} %", style=verdict(improvement, noise))


def _show_ratios(console: Console, ratios: pd.DataFrame) -> None:
    table = Table(title="Against bare pyarrow giving the same batches without delay: median (lowest, highest) of pairs")
    for heading in ("table", "rows per batch", "requests", "pairs", "bare MiB/s", "sync / bare", "async / bare"):
        table.add_column(heading, justify="right")
    for row in ratios.to_dict("records"):
        meant = (row["variant"], row["rows_per_batch"], row["concurrent_requests"]) == TARGET_CELL
        table.add_row(
            row["variant"],
            f"{row['rows_per_batch']:,}",
            f"{row['concurrent_requests']}",
            f"{row['pairs']}",
            f"{row['median_bare_mbps']:.0f}",
            _ratio(row, "sync_to_bare", SYNC_TARGET if meant else None),
            _ratio(row, "async_to_bare", ASYNC_TARGET if meant else None),
        )
    console.print(table)


def _ratio(row: Mapping[Hashable, Any], name: str, target: float | None) -> Text:
    median = row[f"median_{name}"]
    text = f"{median:.2f} ({row[f'min_{name}']:.2f}, {row[f'max_{name}']:.2f})"
    if target is None:
        return Text(text)
    return Text(f"{text}, target {target}", style=WIN if median >= target else LOSS)


def show_memory(console: Console, result: pd.DataFrame) -> None:
    """What the server held beyond its baseline, small file against large."""
    table = Table(title="Memory of the server while it reads a file, beyond what it had before: the worst run, MiB")
    sizes = sorted(result["file_mb"].unique())
    for heading in ("path", "reader", *(f"{size:.0f} MB file" for size in sizes), "more for the larger file"):
        table.add_column(heading, justify="right")
    for (mode, reader), group in result.groupby(["mode", "reader"]):
        held = group.set_index("file_mb")["held_mb"].reindex(sizes)
        table.add_row(str(mode), str(reader), *(f"{size:.1f}" for size in held), f"{held.iloc[-1] - held.iloc[0]:+.1f}")
    console.print(table)


def show_failures(console: Console, errors: pd.Series[str]) -> None:
    """What went wrong, each kind once; nothing where all was right."""
    if errors.empty:
        return
    console.print(f"{len(errors)} requests failed:", style=LOSS)
    for error, count in errors.value_counts().head(SHOWN_FAILURES).items():
        console.print(Text(f"  {count} x {error}"))
