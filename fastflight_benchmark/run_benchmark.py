"""Run a suite of the benchmark, or compare results: is this commit slower?

    uv run python run_benchmark.py --quick && uv run python plot_benchmark_results.py
    uv run python run_benchmark.py --rows 500,20000 --clients 1,8 --delays 0,5
    uv run python run_benchmark.py --compare old.json new.json
    uv run python run_benchmark.py --suite requests --against HEAD~1

It does not prompt. It stops the servers that it started, also on Ctrl-C. Exit code 1: measurements failed, a server
took another path than requested, or a row of this project is slower than before by more than `--threshold`. Exit code
2: the options are wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fastflight.client import DEFAULT_LOCATION
from fastflight.errors import DataError, FastFlightError, RequestError
from fastflight_benchmark import against, compare, ending, machine, report, result
from fastflight_benchmark.engine import Bench, Suite, integers
from fastflight_benchmark.suites import (
    bridge,
    cluster,
    commands,
    flight,
    http,
    relay,
    requests,
    sessions,
    source,
    sql,
    transfer,
)

# The sweep of the suite `flight`. Each combination is measured on both paths and with the peers. `--rows`, `--clients`,
# `--delays` and `--total-rows` replace these values.
ROWS = (40, 1_000, 5_000, 10_000)  # in a batch of 50 int32 columns: 8 kB, 190 kB, 950 kB, 2 MB
CLIENTS = (1, 3, 5, 10, 16, 64)  # clients that read at the same time
DELAYS = (0, 1, 10)  # microseconds that the source takes for a row
TOTAL_ROWS = 1_000_000  # rows of the table that each client reads
# How often the whole sweep is measured, and how many turns each checkout has with `--against`.
RUNS, TURNS = 3, 5
# The values with `--quick`.
QUICK_ROWS, QUICK_CLIENTS, QUICK_TOTAL_ROWS = (40, 1_000, 10_000), (1, 3), 200_000
# How much worse a row may be before it counts as slower.
THRESHOLD = 0.1

SUITES: Mapping[str, Suite] = {
    module.SUITE.name: module.SUITE
    for module in (flight, requests, transfer, sessions, bridge, relay, http, sql, cluster, commands)
}
# The limits of a request for the table, and a limit on clients far above what a computer can serve.
MOST_ROWS, MOST_DELAY, MOST_TOTAL_ROWS, MOST_CLIENTS = 1_000_000, 1_000_000, 1_000_000_000, 1_000
INTERRUPTED = 130

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def _joined(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))


@app.command()
def main(
    suite: Annotated[str, typer.Option(metavar="NAME", help=f"What to measure: {', '.join(SUITES)}.")] = "flight",
    quick: Annotated[
        bool, typer.Option("--quick", help="Measure less, in under a minute: shows that it runs, not how fast.")
    ] = False,
    runs: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help=f"How often each thing is measured. Default: {RUNS}, with --quick once, with --against {TURNS}.",
        ),
    ] = None,
    output_file: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help=f"The JSON to write. Default: a new one in {result.RESULTS}."),
    ] = None,
    rows: Annotated[
        str | None, typer.Option(metavar="N,...", help=f"Suite flight: rows in a batch. Default: {_joined(ROWS)}.")
    ] = None,
    clients: Annotated[
        str | None, typer.Option(metavar="N,...", help=f"Suite flight: clients at once. Default: {_joined(CLIENTS)}.")
    ] = None,
    delays: Annotated[
        str | None,
        typer.Option(metavar="N,...", help=f"Suite flight: microseconds for a row. Default: {_joined(DELAYS)}."),
    ] = None,
    total_rows: Annotated[
        int | None,
        typer.Option(
            min=1, max=MOST_TOTAL_ROWS, metavar="N", help=f"Suite flight: rows of the table. Default: {TOTAL_ROWS}."
        ),
    ] = None,
    sizes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=N,...", help="Another size of the suite, as in devices=500,2000."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE,...", help="Only these cells, e.g. rows=40,1000. Repeat it for other keys."),
    ] = None,
    server: Annotated[
        str, typer.Option(metavar="URL", help="The server to measure; if none answers there, one is started.")
    ] = DEFAULT_LOCATION,
    own_source: Annotated[
        str | None,
        typer.Option(
            "--source", metavar="MODULE:NAME", help="Measure your own source, as in mock_data_service:NUMBERS."
        ),
    ] = None,
    request: Annotated[
        str, typer.Option(metavar="JSON", help="With --source: the keys of the request, as in '{\"year\": 2026}'.")
    ] = "{}",
    compared: Annotated[
        tuple[Path, Path] | None,
        typer.Option("--compare", metavar="OLD NEW", help="Compare two results of a suite. Nothing is measured."),
    ] = None,
    commit: Annotated[
        str | None,
        typer.Option("--against", metavar="COMMIT", help="Measure this checkout and COMMIT in turns, and compare."),
    ] = None,
    threshold: Annotated[
        float,
        typer.Option(min=0.0, max=0.99, metavar="SHARE", help="How much worse a row may be before it is slower."),
    ] = THRESHOLD,
) -> None:
    """Measure, and write the result as JSON, and as CSV beside it. Or compare, and say what is slower."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=report.PIPE_COLUMNS)
    ending.like_ctrl_c()
    try:
        if compared is not None:
            old, new = map(result.load, compared)
            raise typer.Exit(_compared(console, old, new, threshold))
        if suite not in SUITES:
            raise RequestError(f"{suite!r} is not one of {', '.join(SUITES)}", where="--suite")
        own_sizes = {"rows": rows, "clients": clients, "delays": delays, "total-rows": total_rows}
        given = {name: str(value) for name, value in own_sizes.items() if value is not None}
        if given and suite != "flight":
            names = ", ".join(f"--{name}" for name in given)
            raise RequestError(f"only the suite flight has it, not {suite}", where=names)
        if commit is not None:
            passed_on = ["--suite", suite, *(["--quick"] if quick else [])]
            passed_on += [word for name, value in given.items() for word in (f"--{name}", value)]
            passed_on += [word for text in sizes or () for word in ("--set", text)]
            passed_on += [word for text in only or () for word in ("--only", text)]
            old, new = against.measured(commit, runs or TURNS, passed_on, console.print)
            raise typer.Exit(_compared(console, old, new, threshold))
        chosen = SUITES[suite] if own_source is None else source.suite(own_source, request)
        bench = Bench(
            chosen,
            console,
            server,
            quick,
            runs or (1 if quick else RUNS),
            {name: ",".join(values) for name, values in _pairs("--set", sizes or ()).items()},
            {name: frozenset(values) for name, values in _pairs("--only", only or ()).items()},
        )
        if chosen is flight.SUITE:
            bench.facts["sweep"] = {
                "rows": integers("--rows", rows, 1, MOST_ROWS) or (QUICK_ROWS if quick else ROWS),
                "clients": integers("--clients", clients, 1, MOST_CLIENTS) or (QUICK_CLIENTS if quick else CLIENTS),
                "delays": integers("--delays", delays, 0, MOST_DELAY) or DELAYS,
                "total_rows": total_rows or (QUICK_TOTAL_ROWS if quick else TOTAL_ROWS),
            }
            bench.facts["own_sizes"] = bool(given)
        raise typer.Exit(_measured(bench, output_file or result.default_path(chosen.name)))
    except FastFlightError as error:
        console.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(2 if isinstance(error, (RequestError, DataError)) else 1) from error
    except KeyboardInterrupt as error:
        console.print("interrupted: nothing was written")
        raise typer.Exit(INTERRUPTED) from error


def _measured(bench: Bench, path: Path) -> int:
    """Measure, save and show. Return the exit code."""
    try:
        result.prepare(path)
    except OSError as error:
        raise RequestError(f"{path} cannot be written: {error.strerror}", where="--output") from error
    before = machine.describe()
    with bench.progress():
        bench.suite.run(bench)
    measured = bench.result(before)
    result.save(path, measured)
    report.show(bench.console, bench.suite.title, measured)
    report.show_end(bench.console, measured.description)
    bench.console.print(str(path.with_suffix(".json")), style="dim", soft_wrap=True)
    return 1 if bench.errors else 0


def _compared(console: Console, old: result.Result, new: result.Result, threshold: float) -> int:
    """Show the comparison. Return the exit code."""
    changes = compare.compare(old, new, threshold)
    if differ := compare.differences(old, new):
        console.print(f"measured on different machines ({differ}): the ratios say nothing about the code")
    return 1 if compare.show(console, changes, threshold) else 0


def _pairs(option: str, texts: Sequence[str]) -> dict[str, list[str]]:
    """Return the values of each key in texts like `key=value,value`. `RequestError` for any other text."""
    found: dict[str, list[str]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        if not equals or not key or not values:
            raise RequestError(f"{text!r} is not KEY=VALUE or KEY=VALUE,VALUE", where=option)
        found.setdefault(key, []).extend(values.split(","))
    return found


if __name__ == "__main__":
    app()
