"""`fastflight plot`: a few seconds of a board's live values as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

from fastflight.cli import screen
from fastflight.cli.asking import HERE, Server, asking
from fastflight.cli.board import DeviceName
from fastflight.cli.exits import UNREACHABLE, asynchronous
from fastflight.cli.options import ModeOption, Ticks
from fastflight.cli.tail import CUT_SHORT
from fastflight.cli.target import schema_of
from fastflight.errors import DataError
from fastflight.service.requests import SessionFormat

# Inches and dots per inch: 1200 x 600 points, legible in a page and on a screen.
SIZE = (8.0, 4.0)
DPI = 150


@asynchronous
@asking
async def plot(
    device: DeviceName,
    column: Annotated[
        list[str], typer.Option("--column", metavar="NAME", help="What to draw, against time; may be given again.")
    ],
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, max=86_400, metavar="N", help="For so long.")] = 10.0,
    since: Annotated[
        float | None, typer.Option("--since", min=0, metavar="SECONDS", help="Begin so far back, if it is still kept.")
    ] = None,
    format: Annotated[SessionFormat, typer.Option("--format", help="jsonl or csv; csv needs --schema.")] = "jsonl",
    schema: Annotated[
        str | None,
        typer.Option("--schema", metavar="NAME=TYPE,...", help="The lines' columns; by default, those drawn."),
    ] = None,
    ticks: Ticks = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="The PNG; DEVICE.png if left out.")
    ] = None,
    mode: ModeOption = "async",
    server: Server = HERE,
) -> None:
    """Draw columns of what a device says, into a PNG."""
    if format == "csv" and schema is None:
        raise typer.BadParameter("csv lines have no names: give all columns with --schema")
    path = output or Path(f"{device}.png")
    async with (
        server.client() as client,
        await client.session(
            device,
            since_seconds=since,
            format=format,
            schema=schema_of(schema) or {**dict.fromkeys(column, "double"), **({ticks: "int64"} if ticks else {})},
            columns=["board_time" if ticks else "time", *column],
            ticks=ticks,
            limit_seconds=seconds,
            mode=mode,
        ) as stream,
    ):
        rows = await stream.to_arrow()
    if cut_short := CUT_SHORT.get(stream.summary.get("ended", "")):
        screen.complain(f"{cut_short}: what came before is drawn")
    if not rows.num_rows:
        raise DataError(
            f"no line with {', '.join(column)} came in {seconds:g} s",
            where=device,
            hint=f"{stream.summary['rejected']} other lines did: look at them with `fastflight tail`",
        )
    for name in column:
        if rows[name].null_count == rows.num_rows:
            raise DataError(f"no line has {name}", where=device, hint="Look at them with `fastflight tail`")
    draw(rows, column, device, path)
    screen.line(f"{path}: {rows.num_rows:,} rows")
    if cut_short:
        raise typer.Exit(UNREACHABLE)


def draw(rows: pa.Table, columns: list[str], title: str, path: Path) -> None:
    """Lines of `columns` against the first column, a time, into a PNG."""
    from matplotlib.figure import Figure  # a second, which the other commands need not wait

    figure = Figure(figsize=SIZE, dpi=DPI, layout="constrained")
    axes = figure.subplots()
    times = rows.column(0).to_pandas().to_numpy()
    for column in columns:
        axes.plot(times, rows[column].to_pandas().to_numpy(), label=column, linewidth=1)
    axes.set(
        title=title,
        xlabel=f"{rows.column_names[0].replace('_', ' ')} (UTC)",
        ylabel=columns[0] if len(columns) == 1 else None,
    )
    if len(columns) > 1:
        axes.legend()
    axes.grid(alpha=0.3)
    figure.autofmt_xdate()
    figure.savefig(path, format="png")
