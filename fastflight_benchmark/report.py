"""Shows a result on the screen: a table for each kind of cell, with a line for each contender in a cell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fastflight_benchmark import machine
from fastflight_benchmark.result import LESS, NEUTRAL, Result, Row, ratios

WIN, LOSS, NOISE = "bold green", "bold red", "dim"
# The width of a table that goes into a pipe.
PIPE_COLUMNS = 140
SHOWN_FAILURES = 10


def table(title: str, headings: Sequence[str]) -> Table:
    """Return an empty table."""
    grid = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        grid.add_column(heading, justify="right")
    return grid


def show(console: Console, title: str, result: Result) -> None:
    """Show medians of all rounds, and the ratio to the reference: median, lowest and highest of the rounds' ratios."""
    cells: dict[tuple[object, ...], dict[str, list[tuple[Row, Row | None]]]] = {}
    for row, reference in result.compared():
        by_contender = cells.setdefault(tuple(row.cell.items()), {})
        by_contender.setdefault(row.contender, []).append((row, reference))
    groups: dict[tuple[object, ...], list[list[tuple[Row, Row | None]]]] = {}
    for by_contender in cells.values():
        first = next(iter(by_contender.values()))[0][0]
        groups.setdefault((first.cell.get("part", ""), *first.cell), []).extend(by_contender.values())
    for group in groups.values():
        measures = {row.measure: row.unit for pairs in group for row, _ in pairs}
        headings = [f"{name}, {unit}" if unit else name for name, unit in measures.items()]
        grid = table(title, [*group[0][0][0].cell, "", *headings, "of the reference"])
        for column in (len(group[0][0][0].cell), -1):
            grid.columns[column].no_wrap = True
        for pairs in group:
            cell, contender = pairs[0][0].cell, pairs[0][0].contender
            figures = {row.measure: number(row.median) for row, _ in pairs}
            grid.add_row(
                *(f"{label:g}" if isinstance(label, float) else str(label) for label in cell.values()),
                contender,
                *(figures.get(name, "") for name in measures),
                _ratio(pairs),
            )
        console.print(grid)


def _ratio(pairs: Sequence[tuple[Row, Row | None]]) -> Text:
    for row, reference in pairs:
        if row.better != NEUTRAL and reference is not None and (found := ratios(row, reference)):
            text = f"{median(found):.2f} of {reference.contender}"
            if len(found) > 1:
                text += f" ({min(found):.2f}..{max(found):.2f})"
            return Text(text, style=verdict(found, row.better))
    return Text("")


def verdict(found: Sequence[float], better: str) -> str:
    """Return the colour of ratios: a win or a loss only if all of them agree."""
    gains = [1 / one if better == LESS and one else one for one in found]
    return WIN if min(gains) > 1 else LOSS if max(gains) < 1 else NOISE


def show_end(console: Console, description: Mapping[str, Any]) -> None:
    """Show failures, missing peers and the machine."""
    for text in _end(description):
        console.print(text)
    console.print(machine.in_one_line(description["machine"]), style="dim", soft_wrap=True)


def _end(description: Mapping[str, Any]) -> Iterator[Text]:
    errors = description["errors"]
    if errors:
        yield Text(f"{len(errors)} measurements failed:", style=LOSS)
    for error in errors[:SHOWN_FAILURES]:
        yield Text(f"  {error}")
    for name, reason in description["missing"].items():
        yield Text(f"missing: {name}: {reason}", style=LOSS)
    if description["quick"]:
        yield Text("a quick run: it shows that everything works, not how fast")


def number(value: float) -> str:
    """Return a figure with three digits, or all digits before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
