"""Compares two results of a suite: is the newer one slower?

Rows with the same cell, contender and measure are compared round by round. A row is *slower* if the median of its
ratios is worse than the threshold, and no round contradicts it. Rows of peers are shown as a control: if they change
too, the machine changed. Figures that are neither better nor worse (`NEUTRAL`) are left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from rich.console import Console
from rich.text import Text

from fastflight.errors import DataError
from fastflight_benchmark import report
from fastflight_benchmark.result import LESS, NEUTRAL, Result, Row, ratios

SLOWER, FASTER, SAME, CONTROL = "slower", "faster", "", "control"
STYLES = {SLOWER: report.LOSS, FASTER: report.WIN, SAME: report.NOISE, CONTROL: report.NOISE}
# Facts of a machine without which figures cannot be compared.
COMPARABLE = ("cpu", "cores", "memory_gib")


@dataclass(frozen=True, slots=True)
class Change:
    """One row in both results. `speeds` has, for each round, how many times as good the new one is: 0.5 is half."""

    old: Row
    new: Row
    speeds: Sequence[float]
    verdict: str

    @property
    def speed(self) -> float:
        return median(self.speeds)


def compare(old: Result, new: Result, threshold: float) -> list[Change]:
    """Return all common rows, the worst first. `DataError` if the results are of different suites, or have none."""
    suites = old.description["suite"], new.description["suite"]
    if suites[0] != suites[1]:
        raise DataError(f"a result of {suites[0]} and one of {suites[1]} have nothing in common", where="--compare")
    before = {row.key: row for row in old.rows}
    changes = []
    for row in new.rows:
        found = before.get(row.key)
        if found is None or row.better == NEUTRAL:
            continue
        pairs = ratios(row, found) or ([row.median / found.median] if found.median else [])
        speeds = [1 / one if row.better == LESS else one for one in pairs if one]
        if speeds:
            ours = row.contender in new.description["ours"]
            changes.append(Change(found, row, speeds, judged(speeds, threshold) if ours else CONTROL))
    if not changes:
        raise DataError(
            "the two results have no row in common", where=suites[0], hint="Measure both with the same options"
        )
    return sorted(changes, key=lambda change: change.speed)


def judged(speeds: Sequence[float], threshold: float) -> str:
    """Return the verdict on a row. One half is as far below 1 as 2 is above."""
    if median(speeds) < 1 - threshold and max(speeds) < 1:
        return SLOWER
    return FASTER if median(speeds) > 1 / (1 - threshold) and min(speeds) > 1 else SAME


def show(console: Console, changes: Sequence[Change], threshold: float) -> int:
    """Show the table. Return how many rows of ours are slower."""
    grid = report.table(
        "How many times as fast (or as small) as before: median, lowest and highest of the rounds",
        ("cell", "", "measure", "before", "now", "speed", "lowest", "highest", ""),
    )
    for change in changes:
        row = change.new
        figures = (report.number(change.old.median), report.number(row.median))
        speeds = (change.speed, min(change.speeds), max(change.speeds))
        grid.add_row(
            ", ".join(f"{key} {value}" for key, value in row.cell.items()),
            row.contender,
            f"{row.measure}, {row.unit}",
            *figures,
            *(f"{speed:.2f}" for speed in speeds),
            Text(change.verdict, style=STYLES[change.verdict]),
        )
    console.print(grid)
    ours = [change for change in changes if change.verdict != CONTROL]
    slower = sum(change.verdict == SLOWER for change in ours)
    for name, group in (("ours", ours), ("peers, as a control", [one for one in changes if one.verdict == CONTROL])):
        if group:
            mean = math.exp(sum(math.log(change.speed) for change in group) / len(group))
            console.print(f"{name}: {mean:.3f} times as fast in the geometric mean of {len(group)} rows")
    style = report.LOSS if slower else report.WIN
    console.print(Text(f"{slower} of {len(ours)} rows are slower by more than {100 * threshold:g} %", style=style))
    return slower


def differences(old: Result, new: Result) -> str:
    """Return how the two machines differ; empty if the figures can be compared."""
    one, other = old.description.get("machine", {}), new.description.get("machine", {})
    found = [f"{key}: {one.get(key)}, {other.get(key)}" for key in COMPARABLE if one.get(key) != other.get(key)]
    return "; ".join(found)
