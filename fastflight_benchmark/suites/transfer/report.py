"""Shows the result of the suite `transfer` on the screen."""

from __future__ import annotations

import math

import pandas as pd
from rich.console import Console
from rich.text import Text

from fastflight_benchmark.report import LOSS, NOISE, Target, show_met, table
from fastflight_benchmark.suites.transfer.contents import UPLOAD
from fastflight_benchmark.suites.transfer.summary import FIRST, STEADY, TUNING, WITHOUT_PACE

# The targets of the project: the least share of the limit for random bytes, and the smallest file by line speed.
LIMIT_TARGET = 0.95
LIMIT_FROM = {115_200: 10_000}
LIMIT_FROM_ELSE = 100_000
# The least ratios: compressible content to the line rate; to mpremote, at 115200 and without a pace; async to sync.
DEFLATE_TARGET, MPREMOTE_TARGET, MPREMOTE_UNPACED_TARGET, ASYNC_TARGET = 1.5, 3.0, 50.0, 0.95
SMALL_SECONDS = 0.15


def line_name(line: int) -> str:
    """Return the name of a line speed in tables and plots."""
    return "no pace" if line == WITHOUT_PACE else f"{line}"


def size_name(size: float) -> str:
    """Return the name of a size in tables and plots."""
    return f"{size / 1e6:g} MB" if size >= 1e6 else f"{size / 1e3:g} KB"


def show(console: Console, result: pd.DataFrame, *, judged: bool) -> None:
    """Show the cells that were run, the others with the reason and, if `judged`, whether the targets are met."""
    ran = result[result["status"] == "run"]
    _show_cells(console, ran[ran["kind"] == STEADY])
    _show_first(console, ran[ran["kind"] == FIRST])
    _show_tuning(console, ran[ran["kind"] == TUNING])
    left = result[result["status"] != "run"]
    for reason, group in left.groupby("status"):
        cells = {
            f"{size_name(row['size'])} at {line_name(row['line'])}" if row["kind"] == STEADY else "chunk x drain"
            for row in group.to_dict("records")
        }
        console.print(f"{reason}: {', '.join(sorted(cells))}", style="dim", highlight=False)
    if judged:
        _show_targets(console, ran)


def _show_cells(console: Console, cells: pd.DataFrame) -> None:
    grid = table(
        "Median of runs; limit: the line, or ring / round trip, or a bare loop; mpremote on a port (as a terminal)",
        ("line", "type", "operation", "path", "size", "duration", "kB/s", "of limit"),
        "vs mpremote",
        "verified",
    )
    for row in cells.sort_values(["line", "content", "size", "operation", "path"]).to_dict("records"):
        right, made = str(row["verified"]).split("/")
        grid.add_row(
            line_name(row["line"]),
            row["content"],
            row["operation"],
            row["path"],
            size_name(row["size"]),
            seconds_name(row["seconds"]),
            f"{row['bytes_per_second'] / 1e3:.1f}",
            f"{100 * row['of_limit']:.0f} %",
            _times(row["vs_mpremote"], row["vs_mpremote_pty"]),
            Text(row["verified"], style=NOISE if right == made else LOSS),
        )
    console.print(grid)


def _show_first(console: Console, cells: pd.DataFrame) -> None:
    size = size_name(cells["size"].max())
    title = f"The first transfer of a connection, of {size}, which also installs what runs on the board"
    grid = table(title, ("line", "type"), *_FIRST)
    untuned = cells[cells["chunk"] == 0]
    for line, content in untuned[["line", "content"]].drop_duplicates().itertuples(index=False):
        group = untuned[(untuned["line"] == line) & (untuned["content"] == content)]
        by = {(row["operation"], row["path"]): row["seconds"] for row in group.to_dict("records")}
        grid.add_row(
            line_name(line),
            content,
            *(seconds_name(by.get((operation, path), math.nan)) for operation, path in _FIRST_KEYS),
        )
    console.print(grid)


_FIRST_KEYS = [(operation, path) for operation in ("upload", "download") for path in ("sync", "async")]
_FIRST = [f"{operation}, {path}" for operation, path in _FIRST_KEYS]


def _show_tuning(console: Console, cells: pd.DataFrame) -> None:
    for line, size in cells[["line", "size"]].drop_duplicates().itertuples(index=False):
        group = cells[(cells["line"] == line) & (cells["size"] == size)]
        shares = group.pivot(index="chunk", columns="drain", values="of_limit")
        grid = table(
            f"Async upload of {size_name(size)} at {line_name(line)}, percent of the limit, by chunk and drain",
            ("chunk",),
            *(f"drain {drain}" for drain in shares.columns),
        )
        for chunk, row in shares.iterrows():
            grid.add_row(f"{chunk}", *(f"{100 * share:.1f}" for share in row))
        console.print(grid)


def _show_targets(console: Console, ran: pd.DataFrame) -> None:
    """Show the worst cell of each target. A target with a failed transfer is missed."""
    steady = ran[ran["kind"] == STEADY]
    random = steady[steady["content"] == "random"]
    paced = random[random["line"] != WITHOUT_PACE]
    large = paced[paced["size"] >= paced["line"].map(LIMIT_FROM).fillna(LIMIT_FROM_ELSE)]
    small = random[(random["line"] == 115_200) & (random["size"] == 1_000)]
    text = steady[(steady["content"] != "random") & (steady["line"] != WITHOUT_PACE) & (steady["size"] >= 10_000)]
    text = text[text["operation"] == UPLOAD]  # boards send plain blocks
    slow = random[(random["line"] == 115_200) & (random["size"] == 10_000)]
    unpaced = random[(random["line"] == WITHOUT_PACE) & (random["size"] == 1_000_000)]
    for name, cells, figure, target, least in (
        ("random bytes, large enough, of limit", large, "of_limit", LIMIT_TARGET, True),
        ("1 KB at 115200, seconds", small, "seconds", SMALL_SECONDS, False),
        ("CSV and source of 10 KB and more, of the line rate", text, "of_limit", DEFLATE_TARGET, True),
        ("10 KB random at 115200, against mpremote", slow, "vs_mpremote", MPREMOTE_TARGET, True),
        ("1 MB random without a pace, against mpremote", unpaced, "vs_mpremote", MPREMOTE_UNPACED_TARGET, True),
        ("async against sync", steady, "async_to_sync", ASYNC_TARGET, True),
    ):
        values = cells[figure]
        worst = values.min() if least else values.max()
        failed = sum(right != made for right, _, made in (str(text).partition("/") for text in cells["verified"]))
        if math.isnan(worst) and not failed:
            console.print(f"{name}: not measured", highlight=False)
            continue
        failures = f", and {failed} with transfers that failed" if failed else ""
        reached = f"{name}: {worst:.2f} in the worst of {values.count()} cells{failures}; the target is {target}"
        show_met(console, [Target(reached, bool(worst >= target if least else worst <= target) and not failed)])


def seconds_name(seconds: float) -> str:
    """Return the name of a duration in tables."""
    if math.isnan(seconds):
        return "-"
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"


def _times(port: float, terminal: float) -> str:
    if math.isnan(port):
        return "-"
    return f"{port:.1f}x" + ("" if math.isnan(terminal) else f" ({terminal:.1f}x)")
