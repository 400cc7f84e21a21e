"""Run a suite of the benchmark and write its result as CSV.

    python run_benchmark.py --quick && python plot_benchmark_results.py

It asks nothing, and ends what it started, also on Ctrl-C. Exit code 1: requests failed, or a server took another path
than it was asked to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fastflight.client import DEFAULT_LOCATION
from fastflight.errors import FastFlightError
from fastflight_benchmark import ending, output
from fastflight_benchmark.options import Options
from fastflight_benchmark.report import PIPE_COLUMNS
from fastflight_benchmark.selection import Selection
from fastflight_benchmark.suites import endpoints, identity, memory, page
from fastflight_benchmark.suites.boards import suite as boards
from fastflight_benchmark.suites.bridge import suite as bridge
from fastflight_benchmark.suites.flight import suite as flight
from fastflight_benchmark.suites.http import suite as http
from fastflight_benchmark.suites.relay import suite as relay
from fastflight_benchmark.suites.requests import suite as requests
from fastflight_benchmark.suites.sessions import suite as sessions
from fastflight_benchmark.suites.transfer import suite as transfer

# By name, the function that runs a suite, writes its files, and returns how many requests failed.
SUITES: Mapping[str, Callable[[Options], int]] = {
    "flight": flight.run,
    "requests": requests.run,
    "memory": memory.run,
    "transfer": transfer.run,
    "boards": boards.run,
    "bridge": bridge.run,
    "http": http.run,
    "relay": relay.run,
    "page": page.run,
    "endpoints": endpoints.run,
    "sessions": sessions.run,
    "identity": identity.run,
}
# Suites whose cells can be chosen, and whose server can be profiled.
SELECTABLE = frozenset({"flight", "requests"})
INTERRUPTED = 130

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    suite: Annotated[str, typer.Option(metavar="NAME", help=f"What to measure: {', '.join(SUITES)}.")] = "flight",
    quick: Annotated[
        bool, typer.Option("--quick", help="Less of everything, in under a minute: shows that it runs, not how fast.")
    ] = False,
    runs: Annotated[int, typer.Option(min=1, metavar="N", help="How often each thing is measured.")] = 3,
    output_file: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help=f"The CSV to write. Default: a new one in {output.RESULTS}."),
    ] = None,
    server: Annotated[
        str, typer.Option(metavar="URL", help="The server to measure; if none answers there, one is started.")
    ] = DEFAULT_LOCATION,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE,...", help="Only these cells, e.g. rows=40,1000; again for further keys."),
    ] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Write a flame graph of the server beside the CSV, by py-spy.")
    ] = False,
) -> None:
    """Measure, and write the result as CSV: beside it *_raw.csv with every request, and *.json with the machine."""
    if suite not in SUITES:
        raise typer.BadParameter(f"{suite!r} is not one of {', '.join(SUITES)}", param_hint="--suite")
    if (only or profile) and suite not in SELECTABLE:
        raise typer.BadParameter(
            f"{suite} has neither; {' and '.join(sorted(SELECTABLE))} have", param_hint="--only, --profile"
        )
    path = output_file or output.default_path(suite)
    try:
        output.prepare(path)
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be written: {error.strerror}", param_hint="--output") from error
    console = Console()
    if not console.is_terminal:
        console = Console(width=PIPE_COLUMNS)
    ending.like_ctrl_c()
    try:
        failed = SUITES[suite](Options(server, quick, runs, path, console, Selection.parse(only or ()), profile))
    except FastFlightError as error:
        console.print(f"error: {error}", style="red", markup=False, highlight=False)
        raise typer.Exit(1) from error
    except KeyboardInterrupt as error:
        console.print("interrupted: nothing was written")
        raise typer.Exit(INTERRUPTED) from error
    raise typer.Exit(1 if failed else 0)


if __name__ == "__main__":
    app()
