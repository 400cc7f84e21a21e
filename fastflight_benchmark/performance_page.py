"""Fills the tables of the pages in `PAGES` from the results in docs/results.

    python performance_page.py

A table stands between `<!-- table: NAME -->` and `<!-- end -->`; the rest of the page is not changed. A test compares
the pages with the results.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

import typer

from fastflight_benchmark import machine
from fastflight_benchmark.contenders import ASYNC, MODES, SERVERS, SYNC
from fastflight_benchmark.result import Result, Row, difference, load, ratios
from fastflight_benchmark.suites import sql
from fastflight_benchmark.tasks import BOARD, MPREMOTE, SERVER, TASKS

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "performance.md"
PAGES = (PAGE, DOCS / "concepts" / "mpremote.md", DOCS / "sql.md")
TABLE = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
# In the order of the tables.
ORDER = (SYNC, ASYNC, *(name for name in SERVERS if name not in MODES))
# The batches, and the load with its connections, that the tables show; the results have more.
SHOWN_ROWS = (40, 1_000, 10_000)
SHOWN_LOAD = ("flight-client", 16)
BATCHES = {40: "8 kB", 1_000: "190 kB", 5_000: "950 kB", 10_000: "2 MB"}
ROW_BYTES = 50 * 4
FILE_BYTES = 10_000
GLANCE_NAMES = {
    "bare": "bare pyarrow",
    "fastflight-0.4-sync": "FastFlight, sync",
    "fastflight-0.4-async": "FastFlight, async",
}
# The most that SQL may take, by the time of the other contender: the project's targets.
SQL_TARGETS = (
    (sql.AGGREGATE, sql.SQL, sql.DUCKDB, 1 / 0.7),
    (sql.AGGREGATE, sql.RESTRICTED, sql.DUCKDB, 1 / 0.7),
    (sql.FIRST, sql.SQL, sql.DO_GET, 1.3),
    (sql.FETCH, sql.ADBC, sql.DO_GET, 1 / 0.8),
    (sql.FETCH, sql.SQL, sql.QUACK, None),
    (sql.SMALL, sql.SQL, sql.QUACK, None),
    (sql.SMALL, sql.ADBC, sql.QUACK, None),
)


@functools.cache
def stored(suite: str, folder: Path = DOCS / "results") -> Result:
    """Return the stored result of a suite."""
    return load(folder / f"{suite}.json")


def filled(page: str) -> str:
    """Return the page with new tables. `KeyError` for an unknown table."""
    return TABLE.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}\n{found[3]}", page)


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table. All columns but the first are aligned right."""
    ruled = "|" + "|".join("---" if place == 0 else "---:" for place in range(len(headings))) + "|"
    return "\n".join([_row(headings), ruled, *map(_row, rows)])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _machines() -> str:
    lines = []
    for suite in ("flight", "requests"):
        description = stored(suite).description
        missing = ", ".join(description["missing"]) or "none"
        measured = machine.in_one_line(description["machine"])
        lines.append(f"- `{suite}`, `--runs {description['runs']}`: {measured}. Missing peers: {missing}.")
    return "\n".join(lines)


def _glance() -> str:
    """What a user gets, wins and losses alike: a figure of ours, the other's, and how many times as fast ours is."""
    lines = []
    for baud, content, operation, text in (
        (115_200, "random", "download", "from a board"),
        (921_600, "random", "download", "from a board"),
        (115_200, "csv", "upload", "of CSV to a board, deflated on the way"),
    ):
        by = _transfer(baud, content, operation)
        what = f"10 kB {text}, {baud} baud (its line needs {10 * FILE_BYTES / baud:.2f} s)"
        lines.append(_compared(what, "s", 2, by[SYNC], by["mpremote"], "mpremote"))
    for rows, clients in ((40, 1), (1_000, 1), (10_000, 1), (1_000, 64)):
        by = _cell("throughput", rows, clients, 0)
        what = f"table in batches of {BATCHES[rows]}, {clients} reader{'s' if clients > 1 else ''}, {{}}"
        for mode, peers in ((SYNC, ("bare", "fastflight-0.4-sync")), (ASYNC, ("fastflight-0.4-async",))):
            lines += [
                _compared(what.format(mode), "MiB/s", 0, by[mode], by[peer], peer) for peer in peers if peer in by
            ]
    (small,) = stored("requests").of("rate", contender=SYNC, operation="do_get", load="flight-client", connections=16)
    for peer in ("bare", "fastflight-0.4-sync"):
        (theirs,) = stored("requests").of("rate", contender=peer, **small.cell)
        lines.append(_compared("table of 10 rows, 16 connections, sync", "per second", 0, small, theirs, peer))
    asked = {row.contender: row for row in stored("sql").of("time", task=sql.AGGREGATE)}
    lines.append(
        _compared(
            "SQL: an aggregate over 1 GB of recordings", "ms", 0, asked[sql.SQL], asked[sql.DUCKDB], "DuckDB alone"
        )
    )
    times = {dict(cell)["task"]: by for cell, by in stored("commands").cells("time").items()}["list a folder"]
    lines.append(_compared("`fastflight ls` with a server", "s", 2, times[SERVER], times[MPREMOTE], "mpremote"))
    return table(("what", "fastflight", "beside", "its figure", "times as fast"), lines)


def _transfer(baud: int, content: str, operation: str) -> dict[str, Row]:
    labels = {"part": "file", "baud": baud, "content": content, "bytes": FILE_BYTES, "operation": operation}
    return {row.contender: row for row in stored("transfer").of("time", **labels)}  # type: ignore[arg-type]


def _compared(what: str, unit: str, digits: int, ours: Row, theirs: Row, other: str) -> list[str]:
    """Return a line of `_glance`. Where less is better (`s`, `ms`) the ratio is turned round."""
    times = median(ratios(theirs, ours) if ours.better == "less" else ratios(ours, theirs))
    figures = [f"{row.median:,.{digits}f} {unit}" for row in (ours, theirs)]
    return [what, figures[0], GLANCE_NAMES.get(other, other), figures[1], f"{times:.2f}"]


def _cell(measure: str, rows: int, clients: int, delay: int) -> dict[str, Row]:
    """Return the rows of a cell of the suite `flight`, by contender."""
    of = stored("flight").of(measure, variant="default", rows=rows, clients=clients, delay=delay)
    return {row.contender: row for row in of}


def _peers() -> str:
    lines = []
    for rows in SHOWN_ROWS:
        measures = ("throughput", "first row", "messages", "server CPU", "readers' cores")
        throughput, first, messages, cpu, cores = (_cell(measure, rows, 1, 0) for measure in measures)
        for name in _in_order(throughput):
            own = [
                f"{median(ratios(throughput[mode], throughput[name])):.2f}" if (mode, name) in _pairs() else "-"
                for mode in MODES
            ]
            lines.append(
                [
                    f"{BATCHES[rows]}, {name}",
                    f"{throughput[name].median:,.0f}",
                    *own,
                    f"{first[name].median:.1f}",
                    f"{messages[name].median:,.0f}",
                    f"{fmean(cpu[name].known):.2f}",
                    f"{cores[name].median:.1f}",
                ]
            )
    headings = ("batch, server", "MiB/s", "sync by it", "async by it", "first row, ms", "messages", "CPU s/GiB")
    return table((*headings, "readers' cores"), lines)


def _pairs() -> set[tuple[str, str]]:
    """Return the compared pairs: both paths with each peer, and async with sync."""
    return {(mode, peer) for mode in MODES for peer in ORDER if peer not in MODES} | {(ASYNC, SYNC)}


def _in_order(names: Iterable[str]) -> list[str]:
    found = set(names)
    return [name for name in ORDER if name in found]


def gains() -> dict[tuple[int, int, int], float]:
    """Return by delay, rows in a batch and clients how many percent async is faster than sync."""
    return {key: difference(by[SYNC], by[ASYNC])[0] for key, by in _sweep_cells().items()}


def _sweep_cells() -> dict[tuple[int, int, int], dict[str, Row]]:
    cells = stored("flight").cells("throughput", variant="default")
    keyed = {tuple(int(dict(cell)[key]) for key in ("delay", "rows", "clients")): by for cell, by in cells.items()}
    return {key: keyed[key] for key in sorted(keyed) if key[0]}  # type: ignore[misc]


def _claims() -> str:
    lines = []
    names = [name for name in ORDER if name in SERVERS]
    for delay in (1, 10):
        by = _cell("throughput", 10_000, 1, delay)
        figures = [f"{by[name].median:.1f}" if name in by else "-" for name in names]
        lines.append([f"{delay} µs per row", f"{ROW_BYTES / (delay / 1e6) / 2**20:.2f}", *figures])
    return table(("source", "ceiling MiB/s", *names), lines)


def _requests() -> str:
    rate, p50, p99, cpu = (stored("requests").cells(name) for name in ("rate", "median", "99 %", "server CPU"))
    lines = []
    for cell in sorted(rate, key=lambda cell: tuple(dict(cell).values())):
        label = dict(cell)
        if (label["load"], label["connections"]) == SHOWN_LOAD:
            for name in _in_order(rate[cell]):
                figures = (rate[cell][name], p50[cell][name], p99[cell][name], cpu[cell][name])
                shown = (f"{row.median:{how}}" for row, how in zip(figures, (",.0f", ".2f", ".2f", ".0f"), strict=True))
                lines.append([str(label["operation"]), name, *shown])
    headings = ("operation", "server", "per second", "p50 ms", "p99 ms", "server CPU µs")
    return table(headings, lines)


def _rates() -> str:
    best: dict[tuple[str, str], Row] = {}
    for row in stored("requests").of("rate"):
        key = str(row.cell["operation"]), row.contender
        if row.contender in SERVERS and (key not in best or row.median > best[key].median):
            best[key] = row
    lines = []
    for operation, name in sorted(best, key=lambda key: (key[0], ORDER.index(key[1]))):
        row = best[operation, name]
        lines.append([operation, name, f"{row.median:,.0f}", f"{row.cell['connections']}", f"{row.cell['load']}"])
    return table(("operation", "server", "per second", "connections", "load"), lines)


def _commands() -> str:
    times = {dict(cell)["task"]: by for cell, by in stored("commands").cells("time").items()}
    lines = []
    for task in TASKS:
        by: Mapping[str, Any] = times[task.name]
        took = {tool: f"{by[tool].median:.2f} s" if tool in by else "" for tool in (SERVER, BOARD, MPREMOTE)}
        theirs = "no command" if task.theirs is None else f"`{task.theirs}`"
        lines.append([task.name, f"`{task.ours}`", took[SERVER], took[BOARD], theirs, took[MPREMOTE]])
    headings = ("task", "`fastflight` ...", "with a server", "without one", "`mpremote` ...", "time")
    ruled = "|---|---|---:|---:|---|---:|"
    return "\n".join([_row(headings), ruled, *map(_row, lines)])


def _sql() -> str:
    lines = []
    for task, ours, other, most in SQL_TARGETS:
        by = {row.contender: row for row in stored("sql").of("time", task=task)}
        if other not in by:  # the peer was missing
            continue
        ratio = median(ratios(by[ours], by[other]))
        reached = f"{ratio:.2f}{'' if most is None or ratio <= most else ' **missed**'}"
        own, its = f"{by[ours].median:,.0f}", f"{by[other].median:,.0f}"
        lines.append([f"{task}, {ours}", own, other, its, reached, "" if most is None else f"{most:.2f}"])
    headings = ("task", "time, ms", "beside", "its time, ms", "ratio, median of pairs", "at most")
    return "\n".join([_row(headings), "|---|---:|---|---:|---:|---:|", *map(_row, lines)])


TABLES: Mapping[str, Callable[[], str]] = {
    "machines": _machines,
    "glance": _glance,
    "peers": _peers,
    "claims": _claims,
    "requests": _requests,
    "rates": _rates,
    "commands": _commands,
    "sql": _sql,
}

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main() -> None:
    """Fill the tables of the documentation from docs/results."""
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
        typer.echo(page)


if __name__ == "__main__":
    app()
