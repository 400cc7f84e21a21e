"""Shows results on the screen: tables, targets, failures. A loss is as visible as a win, in another colour."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fastflight_benchmark import machine
from fastflight_benchmark.targets import Judged

WIN, LOSS, NOISE = "green", "red", "default"
# How many kinds of failure are shown.
SHOWN_FAILURES = 5
# The names of batches in tables and plots, by rows of 50 int32.
BATCH_NAMES = {40: "8 kB", 1_000: "190 kB", 5_000: "950 kB", 10_000: "2 MB"}
# Width of tables if the output is a file or a pipe.
PIPE_COLUMNS = 140


def duration(seconds: float) -> str:
    """Return a rough duration for people."""
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} s"


def delay_title(delay: float) -> str:
    """Return the name of a delay in tables and plots."""
    return f"{delay * 1e6:g} µs per row" if delay else "no delay"


def batch_title(rows: int) -> str:
    """Return the name of a batch of the default table in tables and plots."""
    return BATCH_NAMES.get(rows, f"{rows:,} rows")


def verdict(improvement: float, noise: float) -> str:
    """Return the colour of a difference in percent: `NOISE` if it is no larger than the spread of the runs."""
    if math.isnan(improvement) or abs(improvement) <= noise:
        return NOISE
    return WIN if improvement > 0 else LOSS


def show_targets(console: Console, judged: Sequence[Judged]) -> None:
    """Show a line for each target of `targets`, also for targets that were not measured."""
    for one in judged:
        style = NOISE if one.met is None else WIN if one.met else LOSS
        console.print(Text(str(one), style=style))


@dataclass(frozen=True, slots=True)
class Target:
    """A target and the figure that was reached, as text, and whether the target is met."""

    text: str
    met: bool


def show_met(console: Console, judged: Iterable[Target]) -> None:
    """Show a line for each target."""
    for one in judged:
        console.print(Text(f"{one.text}: {'met' if one.met else 'missed'}", style=WIN if one.met else LOSS))


def show_end(console: Console, description: Mapping[str, Any], errors: pd.Series[str], path: Path) -> None:
    """Show failed requests, missing peers, the machine, and the path of the result."""
    show_failures(console, errors)
    for name, reason in description.get("missing", {}).items():
        console.print(Text(f"missing: {name}: {reason}", style=LOSS))
    if description.get("profiled"):
        console.print("the server was profiled, which slows it down: do not use these figures as a result")
    if description["quick"]:
        console.print("a quick run: it shows that everything works, not how fast")
    console.print(f"{machine.in_one_line(description['machine'])}\n{path}", style="dim", soft_wrap=True)


def table(title: str, headings: Sequence[str], *whole: str) -> Table:
    """Return an empty table for a screen of 80 columns. `headings` may wrap, the headings `whole` may not."""
    grid = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        grid.add_column(heading, justify="right")
    for heading in whole:
        grid.add_column(heading, justify="right", no_wrap=True)
    return grid


def show_failures(console: Console, errors: pd.Series[str]) -> None:
    """Show each kind of error once, with its count."""
    if errors.empty:
        return
    console.print(f"{len(errors)} requests failed:", style=LOSS)
    for error, count in errors.value_counts().head(SHOWN_FAILURES).items():
        console.print(Text(f"  {count} x {error}"))
