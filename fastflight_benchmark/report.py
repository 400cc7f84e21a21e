"""Results on the screen. A loss is shown as plainly as a win: same place, same size, red instead of green."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fastflight_benchmark import machine, summary, targets
from fastflight_benchmark.contenders import AIO, BARE, NAMESAKE_ASYNC, NAMESAKE_SYNC, PEERS
from fastflight_benchmark.targets import Judged

WIN, LOSS, NOISE = "green", "red", "default"
# Of different kinds of failure: the first ones say what is wrong.
SHOWN_FAILURES = 5
# Peers' names in narrow tables.
SHORT = {NAMESAKE_SYNC: "FF sync", NAMESAKE_ASYNC: "FF async", AIO: "aio"}
# Rows of 50 int32 by which tables and plots name a batch.
BATCH_NAMES = {40: "8 kB", 1_000: "190 kB", 5_000: "950 kB", 10_000: "2 MB"}


def duration(seconds: float) -> str:
    """About how long, for people."""
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} s"


def delay_title(delay: float) -> str:
    """A delay as tables and plots name it."""
    return f"{delay * 1e6:g} µs per row" if delay else "no delay"


def batch_title(rows: int) -> str:
    """A batch of the default table as tables and plots name it."""
    return BATCH_NAMES.get(rows, f"{rows:,} rows")


def verdict(improvement: float, noise: float) -> str:
    """The colour of a difference in percent: `NOISE` where the runs differ as much among themselves."""
    if math.isnan(improvement) or abs(improvement) <= noise:
        return NOISE
    return WIN if improvement > 0 else LOSS


def show_flight(
    console: Console, result: pd.DataFrame, servers: pd.DataFrame, ratios: pd.DataFrame, *, judged: bool
) -> None:
    """The sweep, all servers, the ratios to peers, and, where it is to be `judged`, whether the targets are met."""
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
    _show_servers(console, servers)
    _show_ratios(console, ratios)
    if judged:
        show_targets(console, targets.flight(compared, ratios))


def _show_servers(console: Console, servers: pd.DataFrame) -> None:
    shown = table(
        "Each server. first: ms to the first row; sent: batches in an answer;\n"
        "CPU: the server's seconds per GiB; busy: cores that the readers kept busy",
        ("batch", "delay", "readers", "MiB/s", "first", "sent", "CPU", "busy"),
        "server",
    )
    for row in servers.sort_values([*summary.CELL, "variant"]).to_dict("records"):
        shown.add_row(
            *_cell(row),
            f"{row['throughput_mbps']:.0f}",
            f"{1e3 * row['first_batch_seconds']:.1f}",
            f"{row['messages']:.0f}",
            f"{row['server_cpu_seconds_per_gib']:.2f}",
            f"{row['reader_cores']:.1f}",
            row["mode"],
        )
    console.print(shown)


def _show_ratios(console: Console, ratios: pd.DataFrame) -> None:
    peers = [name for name in PEERS if name in set(ratios["peer"])]
    shown = table(
        "Ours by peers' that give the same batches: median of pairs (of bare also lowest, highest)",
        ("batch", "delay", "readers", "path"),
        *(SHORT.get(name, name) for name in peers),
    )
    for _, cell in ratios[ratios["peer"].isin(peers)].groupby([*summary.CELL, "variant", "mode"]):
        rows = {row["peer"]: row for row in cell.to_dict("records")}
        first = next(iter(rows.values()))
        shown.add_row(*_cell(first), first["mode"], *(_ratio(rows.get(name), spread=name == BARE) for name in peers))
    console.print(shown)


def _cell(row: Mapping[Hashable, Any]) -> tuple[str, str, str]:
    rows = row["rows_per_batch"]
    return (
        batch_title(rows) if row["variant"] == "default" else f"{row['variant']} {rows:,}",
        f"{row['delay_per_row'] * 1e6:g} µs",
        f"{row['concurrent_requests']}",
    )


def _ratio(row: Mapping[Hashable, Any] | None, *, spread: bool) -> str:
    if row is None:
        return "-"
    return f"{row['median_ratio']:.2f}" + (f" ({row['min_ratio']:.2f}, {row['max_ratio']:.2f})" if spread else "")


def show_targets(console: Console, judged: Sequence[Judged]) -> None:
    """Which targets are met; those for which nothing was measured are said to be so."""
    for one in judged:
        style = NOISE if one.met is None else WIN if one.met else LOSS
        console.print(Text(str(one), style=style))


def show_foot(console: Console, description: Mapping[str, Any], path: Path) -> None:
    """What it was measured on, what was missing, and where it is written."""
    for name, reason in description.get("missing", {}).items():
        console.print(Text(f"missing: {name}: {reason}", style=LOSS))
    if description.get("profiled"):
        console.print("the server was profiled meanwhile: its figures are no result")
    console.print(f"{machine.in_one_line(description['machine'])}\n{path}", style="dim", soft_wrap=True)


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
