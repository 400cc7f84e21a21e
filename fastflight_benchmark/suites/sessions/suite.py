"""Suite `sessions`: live sessions of boards that print, and the cost of recording them.

Its parts (`measuring`) are: as many readers as boards; a thousand recorded boards, some of which are also read live;
one board on a line at full speed; many readers of one board; and many readers, one of which stops for a minute.
`keeping` measures the log by itself. Boards, server and readers are three processes on this computer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from fastflight.errors import FastFlightError
from fastflight_benchmark import output, report
from fastflight_benchmark.contenders import ASYNC, MODES
from fastflight_benchmark.options import Options
from fastflight_benchmark.suites.sessions import keeping
from fastflight_benchmark.suites.sessions import report as sessions_report
from fastflight_benchmark.suites.sessions.measuring import FULL_SPEED, Cell, measure
from fastflight_benchmark.suites.sessions.reading import BYTES
from fastflight_benchmark.suites.sessions.rows import BOARDS, FULL, KEPT, READERS, STALLED, frame, summarize


@dataclass(frozen=True, slots=True)
class Scope:
    """The cells, the seconds of each, and how many bytes go through the log."""

    boards: Sequence[int]
    # `kept` boards are all recorded; `sampled` of them are also read live.
    kept: int
    sampled: int
    readers: Sequence[int]
    seconds: float
    stalled_readers: int
    stall_seconds: float
    stall_bytes_per_second: float
    log_bytes: int


FULL_SCOPE = Scope((1, 10, 100), 1000, 50, (10, 50), 3.0, 50, 60.0, FULL_SPEED, 256_000_000)
# A faster line, so that the server's buffer for a reader overflows in a few seconds.
QUICK_SCOPE = Scope((5,), 50, 5, (5,), 0.5, 3, 4.0, 10 * FULL_SPEED, 16_000_000)


def run(options: Options, scope: Scope | None = None) -> int:
    """Measure, save and show. Return how many cells failed, lost a row without a gap, or recorded a wrong one."""
    scope = scope or (QUICK_SCOPE if options.quick else FULL_SCOPE)
    description = options.describe("sessions", scope)
    if not options.quick:
        options.console.print("about two and a half minutes for each run, and as long once for the stalled readers")
    found: list[dict[str, Any]] = []
    logged: list[dict[str, Any]] = []
    with options.progress() as step:
        for number in range(1, options.runs + 1):
            for cell, seconds in planned(scope, number):
                step(f"run {number}: {cell.boards} boards, {cell.readers} readers, {cell.mode}")
                found += [{"run": number} | row for row in _measured(cell, seconds)]
            step(f"run {number}: the log")
            logged += keeping.kept(scope.log_bytes, number)
    raw = frame(found)
    result = summarize(raw)
    log = pd.DataFrame(logged)
    output.save(options.output, result, {"raw": raw, "log": log}, description)
    sessions_report.show(options.console, result, log, judged=not options.quick)
    bad = raw[sessions_report.bad(raw)]
    report.show_end(options.console, description, bad["error"], options.output)
    return len(bad) + int((log["error"] != "").sum())


def planned(scope: Scope, number: int) -> Iterator[tuple[Cell, float]]:
    """Yield the cells of a run with their seconds. The order of the paths is reversed with each run."""
    modes = MODES if number % 2 else MODES[::-1]
    for count in scope.boards:
        for mode in modes:
            yield Cell(BOARDS, count, count, mode), scope.seconds
        yield Cell(BOARDS, count, count, ASYNC, recorded=True), scope.seconds
    for mode in modes:
        yield Cell(KEPT, scope.kept, scope.sampled, mode, recorded=True), scope.seconds
    for mode in modes:
        yield Cell(FULL, 1, 1, mode, bytes_per_second=FULL_SPEED), scope.seconds
    yield Cell(FULL, 1, 1, ASYNC, recorded=True, bytes_per_second=FULL_SPEED), scope.seconds
    for count in scope.readers:
        for mode in modes:
            yield Cell(READERS, 1, count, mode), scope.seconds
    if number == 1:
        for mode in modes:
            cell = Cell(
                STALLED, 1, scope.stalled_readers, mode, bytes_per_second=scope.stall_bytes_per_second, format=BYTES,
                stall_seconds=scope.stall_seconds,
            )  # fmt: skip
            # After the stall, the reader still has to read the rows that waited for it.
            yield cell, scope.stall_seconds + scope.seconds


def _measured(cell: Cell, seconds: float) -> Iterator[dict[str, Any]]:
    try:
        yield from measure(cell, seconds)
    except FastFlightError as error:
        yield asdict(cell) | {"error": str(error)}
