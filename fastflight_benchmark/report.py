"""Results on the screen. A loss is shown as plainly as a win: same place, same size, red instead of green."""

from __future__ import annotations

import math
from collections.abc import Sequence

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
TARGETS = {"sync": 0.9, "async": 0.8}


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


def show_flight(console: Console, result: pd.DataFrame, ratios: pd.DataFrame, *, judged: bool) -> None:
    """The sweep, then the ratios to bare pyarrow, then, where it is to be `judged`, whether the targets are met."""
    compared = summary.compare(result)
    shown = table(
        "MiB/s of all requests together; limit: the source's pace, or bare pyarrow in this run",
        ("delay", "rows per batch", "readers", "sync", "async", "limit", "sync of limit", "async of limit"),
        "async to sync",
    )
    for cell in compared.sort_values(["delay_per_row", "rows_per_batch", "concurrent_requests"]).to_dict("records"):
        shown.add_row(
            f"{cell['delay_per_row'] * 1e6:g} µs",
            f"{cell['rows_per_batch']:,}",
            f"{cell['concurrent_requests']}",
            f"{cell['sync_mbps']:.1f}",
            f"{cell['async_mbps']:.1f}",
            f"{cell['limit_mbps']:.1f}",
            f"{cell['sync_of_limit']:.0f} %",
            f"{cell['async_of_limit']:.0f} %",
            Text(
                f"{cell['improvement']:+.1f} ± {cell['noise']:.1f} %", style=verdict(cell["improvement"], cell["noise"])
            ),
        )
    console.print(shown)
    beyond = [verdict(cell["improvement"], cell["noise"]) for cell in compared.to_dict("records")]
    console.print(
        f"async against sync in {len(beyond)} cells: {beyond.count(WIN)} better, {beyond.count(LOSS)} worse, "
        f"{beyond.count(NOISE)} within the noise (±: standard deviation of the difference of two runs)\n"
    )
    _show_ratios(console, ratios)
    if judged:
        _show_targets(console, ratios)


def _show_ratios(console: Console, ratios: pd.DataFrame) -> None:
    shown = table(
        "Against bare pyarrow giving the same batches without delay: median (lowest, highest) of pairs",
        ("table", "rows per batch", "readers", "pairs", "bare MiB/s"),
        "sync / bare",
        "async / bare",
    )
    for row in ratios.to_dict("records"):
        shown.add_row(
            row["variant"],
            f"{row['rows_per_batch']:,}",
            f"{row['concurrent_requests']}",
            f"{row['pairs']}",
            f"{row['median_bare_mbps']:.0f}",
            *(
                f"{row[f'median_{name}']:.2f} ({row[f'min_{name}']:.2f}, {row[f'max_{name}']:.2f})"
                for name in ("sync_to_bare", "async_to_bare")
            ),
        )
    console.print(shown)


def _show_targets(console: Console, ratios: pd.DataFrame) -> None:
    for row in ratios.to_dict("records"):
        if (row["variant"], row["rows_per_batch"], row["concurrent_requests"]) == TARGET_CELL:
            for mode, target in TARGETS.items():
                reached = row[f"median_{mode}_to_bare"]
                met = reached >= target
                text = f"{mode} reaches {reached:.2f} of bare pyarrow; the target is {target}: "
                console.print(Text(text + ("met" if met else "missed"), style=WIN if met else LOSS))


def show_memory(console: Console, result: pd.DataFrame) -> None:
    """What the server held beyond its baseline, small file against large."""
    sizes = sorted(result["file_mb"].unique())
    shown = table(
        "MiB that the server holds while it reads a file, beyond what it had before; the worst run",
        ("path", "reader", *(f"{size:.0f} MB file" for size in sizes)),
        "more for the larger file",
    )
    for (mode, reader), group in result.groupby(["mode", "reader"]):
        held = group.set_index("file_mb")["held_mb"].reindex(sizes)
        shown.add_row(str(mode), str(reader), *(f"{size:.1f}" for size in held), f"{held.iloc[-1] - held.iloc[0]:+.1f}")
    console.print(shown)


def table(title: str, headings: Sequence[str], *whole: str) -> Table:
    """Narrow enough for 80 columns: headings may wrap, the columns `whole` may not."""
    grid = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        grid.add_column(heading, justify="right")
    for heading in whole:
        grid.add_column(heading, justify="right", no_wrap=True)
    return grid


def show_failures(console: Console, errors: pd.Series[str]) -> None:
    """What went wrong, each kind once; nothing where all was right."""
    if errors.empty:
        return
    console.print(f"{len(errors)} requests failed:", style=LOSS)
    for error, count in errors.value_counts().head(SHOWN_FAILURES).items():
        console.print(Text(f"  {count} x {error}"))
