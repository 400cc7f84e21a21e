"""Run a suite of the benchmark and write its result as CSV.

    python run_benchmark.py --quick && python plot_benchmark_results.py
    python run_benchmark.py --rows 500,20000 --clients 1,8 --delays 0,5

It does not prompt. It stops the servers that it started, also on Ctrl-C. Exit code 1: requests failed, or a server took
another path than requested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from fastflight_benchmark.suites import beside, endpoints, identity, memory, page
from fastflight_benchmark.suites import source as own_source
from fastflight_benchmark.suites.boards import suite as boards
from fastflight_benchmark.suites.bridge import suite as bridge
from fastflight_benchmark.suites.cluster import suite as cluster
from fastflight_benchmark.suites.commands import suite as commands
from fastflight_benchmark.suites.flight import suite as flight
from fastflight_benchmark.suites.http import suite as http
from fastflight_benchmark.suites.relay import suite as relay
from fastflight_benchmark.suites.requests import suite as requests
from fastflight_benchmark.suites.sessions import suite as sessions
from fastflight_benchmark.suites.sql import suite as sql
from fastflight_benchmark.suites.transfer import suite as transfer

# The sweep of the suite `flight`. Each combination is measured on both paths and with the peers. `--rows`, `--clients`,
# `--delays` and `--total-rows` replace these values.
ROWS = (40, 1_000, 5_000, 10_000)  # in a batch of 50 int32 columns: 8 kB, 190 kB, 950 kB, 2 MB
CLIENTS = (1, 3, 5, 10, 16, 64)  # clients that read at the same time
DELAYS = (0, 1, 10)  # microseconds that the source takes for a row
TOTAL_ROWS = 1_000_000  # rows of the table that each client reads
# How often the whole sweep is measured.
RUNS = 3
# The values with `--quick`.
QUICK_ROWS, QUICK_CLIENTS, QUICK_TOTAL_ROWS = (40, 1_000, 10_000), (1, 3), 200_000


def sweep(rows: Iterable[int], clients: Sequence[int], delays: Sequence[int], total_rows: int) -> Iterator[flight.Cell]:
    """Yield the cells of the suite `flight`, in the order in which they are measured."""
    for rows_per_batch in rows:
        for readers in clients:
            for delay in delays:
                yield flight.Cell(rows_per_batch, readers, delay, total_rows)


FLIGHT, CLUSTER = "flight", "cluster"
# The other suites, by name. Each function measures, writes the files, and returns how many requests failed.
SUITES: Mapping[str, Callable[[Options], int]] = {
    "requests": requests.run,
    "memory": memory.run,
    "transfer": transfer.run,
    "boards": boards.run,
    "bridge": bridge.run,
    "beside": beside.run,
    "http": http.run,
    "relay": relay.run,
    "page": page.run,
    "endpoints": endpoints.run,
    "sessions": sessions.run,
    "identity": identity.run,
    "commands": commands.run,
    "sql": sql.run,
    CLUSTER: cluster.run,
}
NAMES = (FLIGHT, *SUITES)
# Suites whose cells can be chosen, and whose server can be profiled.
SELECTABLE = frozenset({FLIGHT, "requests"})
# The limits of a request for the table, and a limit on clients far above what a computer can serve.
MOST_ROWS, MOST_DELAY, MOST_TOTAL_ROWS, MOST_CLIENTS = 1_000_000, 1_000_000, 1_000_000_000, 1_000
# The fleet file of so many devices is as large as one may be. Each server and each viewer takes memory.
MOST_DEVICES, MOST_VIEWERS, MOST_SERVERS = 15_000, 4_000, 16
INTERRUPTED = 130


def integers(option: str, text: str | None, least: int, most: int) -> tuple[int, ...]:
    """Return the numbers in `text` without duplicates. Without text there are none.

    Raise `typer.BadParameter` if one is not in the range from `least` to `most`.
    """
    numbers: dict[int, None] = {}
    for word in () if text is None else text.split(","):
        try:
            number = int(word)
        except ValueError:
            raise typer.BadParameter(f"{word!r} is not a whole number", param_hint=option) from None
        if not least <= number <= most:
            raise typer.BadParameter(f"{number} is not between {least} and {most}", param_hint=option)
        numbers[number] = None
    return tuple(numbers)


def _joined(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    suite: Annotated[str, typer.Option(metavar="NAME", help=f"What to measure: {', '.join(NAMES)}.")] = FLIGHT,
    quick: Annotated[
        bool, typer.Option("--quick", help="Measure less, in under a minute: shows that it runs, not how fast.")
    ] = False,
    runs: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help=f"How often each thing is measured. Default: {RUNS}, with --quick once."),
    ] = None,
    output_file: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help=f"The CSV to write. Default: a new one in {output.RESULTS}."),
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
            min=1,
            max=MOST_TOTAL_ROWS,
            metavar="N",
            help=f"Suite flight: rows of the table, at the most. Default: {TOTAL_ROWS}.",
        ),
    ] = None,
    devices: Annotated[
        str | None, typer.Option(metavar="N,...", help="Suite cluster: boards that all servers share.")
    ] = None,
    viewers: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_VIEWERS, metavar="N", help="Suite cluster: boards that are watched, at the most."),
    ] = None,
    silent: Annotated[
        str | None, typer.Option(metavar="N,...", help="Suite cluster: boards that print nothing.")
    ] = None,
    servers: Annotated[
        str | None,
        typer.Option(metavar="N,...", help="Suite cluster: servers for requests; the most of them share the boards."),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(metavar="MODULE:NAME", help="Measure your own source, as in mock_data_service:NUMBERS."),
    ] = None,
    request: Annotated[
        str, typer.Option(metavar="JSON", help="With --source: the keys of the request, as in '{\"year\": 2026}'.")
    ] = "{}",
    server: Annotated[
        str, typer.Option(metavar="URL", help="The server to measure; if none answers there, one is started.")
    ] = DEFAULT_LOCATION,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE,...", help="Only these cells, e.g. rows=40,1000. Repeat it for other keys."),
    ] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Write a flame graph of the server beside the CSV, by py-spy.")
    ] = False,
) -> None:
    """Measure, and write the result as CSV: beside it *_raw.csv with every request, and *.json with the machine."""
    if suite not in NAMES:
        raise typer.BadParameter(f"{suite!r} is not one of {', '.join(NAMES)}", param_hint="--suite")
    sizes = {"--rows": rows, "--clients": clients, "--delays": delays, "--total-rows": total_rows}
    own = [option for option, value in sizes.items() if value is not None]
    if own and suite != FLIGHT:
        raise typer.BadParameter(f"only the suite {FLIGHT} has it, not {suite}", param_hint=", ".join(own))
    of_cluster = {
        "devices": integers("--devices", devices, 1, MOST_DEVICES),
        "viewers": () if viewers is None else (viewers,),
        "silent": integers("--silent", silent, 1, MOST_DEVICES),
        "servers": integers("--servers", servers, 1, MOST_SERVERS),
    }
    if any(of_cluster.values()) and suite != CLUSTER:
        named = ", ".join(f"--{name}" for name, value in of_cluster.items() if value)
        raise typer.BadParameter(f"only the suite {CLUSTER} has it, not {suite}", param_hint=named)
    cells = list(
        sweep(
            integers("--rows", rows, 1, MOST_ROWS) or (QUICK_ROWS if quick else ROWS),
            integers("--clients", clients, 1, MOST_CLIENTS) or (QUICK_CLIENTS if quick else CLIENTS),
            integers("--delays", delays, 0, MOST_DELAY) or DELAYS,
            total_rows or (QUICK_TOTAL_ROWS if quick else TOTAL_ROWS),
        )
    )
    if (only or profile) and suite not in SELECTABLE:
        raise typer.BadParameter(
            f"{suite} has neither; only {' and '.join(sorted(SELECTABLE))} have them", param_hint="--only, --profile"
        )
    if source is not None and (suite != FLIGHT or own or only or profile or server != DEFAULT_LOCATION):
        raise typer.BadParameter("it goes with --request, --quick, --runs and --output only", param_hint="--source")
    path = output_file or output.default_path("source" if source else suite)
    try:
        output.prepare(path)
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be written: {error.strerror}", param_hint="--output") from error
    console = Console()
    if not console.is_terminal:
        console = Console(width=PIPE_COLUMNS)
    ending.like_ctrl_c()
    try:
        selection = Selection.parse(only or ())
        options = Options(server, quick, runs or (1 if quick else RUNS), path, console, selection, profile, of_cluster)
        if source is not None:
            failed = own_source.run(options, source, request)
        elif suite == FLIGHT:
            failed = flight.run(options, cells, own_sizes=bool(own))
        else:
            failed = SUITES[suite](options)
    except FastFlightError as error:
        console.print(f"error: {error}", style="red", markup=False, highlight=False)
        raise typer.Exit(1) from error
    except KeyboardInterrupt as error:
        console.print("interrupted: nothing was written")
        raise typer.Exit(INTERRUPTED) from error
    raise typer.Exit(1 if failed else 0)


if __name__ == "__main__":
    app()
