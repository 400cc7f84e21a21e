"""`fastflight sql`: show the result of a query as a table, or write it to a file or to standard output."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fastflight.cli import screen
from fastflight.cli.interruption import interruptible
from fastflight.cli.options import AsJson
from fastflight.cli.server_options import DEFAULT_SERVER, Server, with_server_options
from fastflight.service.choices import MAX_REQUEST_BYTES

# The name of standard input, as QUERY.
STDIN = "-"
# A result of so many rows is shown whole; of a longer one, the first of these rows and the last ones.
SHOWN_ROWS = 40


@interruptible
@with_server_options
def sql(
    query: Annotated[
        str, typer.Argument(metavar="[QUERY]", help="One select statement; - or left out: from standard input.")
    ] = STDIN,
    values: Annotated[
        list[str] | None,
        typer.Option(
            "--value", "-v", metavar="VALUE", help="The value of the next ? in the query; may be given again."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write the rows to a .csv, .jsonl, .arrow, .parquet or .mcap file."
        ),
    ] = None,
    json: AsJson = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Show the result of an SQL query over the server's files and recordings.

    Files and recordings are tables: demo."readings.csv", demo.recording. `show tables` lists them.
    In a pipe the rows are printed as CSV, with --json as JSON lines.
    """
    text = sys.stdin.read(MAX_REQUEST_BYTES) if query == STDIN else query
    if not text.strip():
        raise typer.BadParameter("there is no query: give one, or send it to standard input")
    # Not at the top: they load Arrow, which `--help` does not need.
    from fastflight.cli import drawing
    from fastflight.cli.get_rows import print_rows, save_rows
    from fastflight.cli.preview import preview_of

    with server.client() as client, client.sql(text, values) as stream:
        if output is not None:
            saved = save_rows(stream, stream, output)
            if json:
                screen.as_json({"output": str(output), **stream.summary})
            else:
                drawing.show(saved)
        elif json or not sys.stdout.isatty():
            print_rows(stream.schema, stream, "jsonl" if json else "csv")
        else:
            drawing.show(preview_of(stream.schema, stream, first=SHOWN_ROWS))
