"""`fastflight plot`: draw some seconds of a device's live output into a PNG file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer

from fastflight.cli import screen
from fastflight.cli.arguments import device_name, schema_of
from fastflight.cli.exit_codes import UNREACHABLE, Interrupted
from fastflight.cli.interruption import interruptible
from fastflight.cli.options import DeviceName, ModeOption, Since
from fastflight.cli.server_options import DEFAULT_SERVER, Server, with_device_options
from fastflight.cli.tail import CUT_SHORT, sessions
from fastflight.client.local_names import local_name
from fastflight.errors import DataError, quantity
from fastflight.extras import needs
from fastflight.service.choices import SessionFormat

# Inches, and dots per inch: 1200 x 600 pixels, legible on paper and on a screen.
SIZE = (8.0, 4.0)
DPI = 150


@interruptible
@with_device_options
def plot(
    column: Annotated[
        list[str], typer.Option("--column", metavar="NAME", help="Column to draw against time; may be given again.")
    ],
    device: DeviceName = None,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.1, max=86_400, metavar="N", help="How long to collect rows.")
    ] = 10.0,
    since: Since = None,
    format: Annotated[
        SessionFormat | None,
        typer.Option("--format", help="jsonl or csv; csv needs --schema. Left out: the device's own layout."),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema",
            metavar="NAME=TYPE,...",
            help="Columns of jsonl or csv lines. For jsonl, by default the drawn ones.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="PNG file to write; by default DEVICE.png.")
    ] = None,
    mode: ModeOption = "async",
    server: Server = DEFAULT_SERVER,
) -> None:
    """Plot columns of a device's live output into a PNG file.

    Ctrl-C ends it earlier, and draws the rows until then.
    """
    if format == "csv" and schema is None:
        raise typer.BadParameter("csv lines have no names: give all columns with --schema")
    with needs("plot", "`plot`"):  # before rows are collected
        import matplotlib  # noqa: F401
    layout: dict[str, Any] = {"as_": "rows"}
    if format is not None or schema is not None:
        layout = {"format": format or "jsonl", "schema": schema_of(schema) or dict.fromkeys(column, "double")}
    with server.client() as client:
        tables: list[pa.Table] = []
        drawable = interrupted = False
        for stream in sessions(
            client,
            device := device_name(client, device),
            since_seconds=since,
            columns=["time", *column],
            limit_seconds=seconds,
            mode=mode,
            **layout,
        ):
            batches: list[pa.RecordBatch] = []
            try:
                for batch in stream:
                    batches.append(batch)
                    if batch.num_rows and not drawable:
                        drawable = True
                        screen.complain(f"{device}: rows for {seconds:g} s; Ctrl-C draws those until then")
            except KeyboardInterrupt:
                interrupted = True
                stream.cancel()
            tables.append(pa.Table.from_batches(batches, stream.schema))
            if interrupted:
                break
    rows = pa.concat_tables(tables, promote_options="permissive")
    if interrupted and not rows.num_rows:
        raise Interrupted("no rows came")
    summary = {} if interrupted else stream.summary
    if cut_short := CUT_SHORT.get(summary.get("ended", "")):
        screen.complain(f"{cut_short}: the plot shows the rows until then")
    if not rows.num_rows:
        raise DataError(
            f"no line with {', '.join(column)} came in {seconds:g} s",
            where=device,
            hint=f"{quantity(summary['rejected'], 'other line')} came: show them with `fastflight tail`",
        )
    for name in column:
        if rows[name].null_count == rows.num_rows:
            raise DataError(f"no line has {name}", where=device, hint="Show the lines with `fastflight tail`")
    path = output or Path(f"{local_name(device)}.png")
    draw(rows, column, device, path)
    screen.line(f"{path}: {quantity(rows.num_rows, 'row')}")
    if interrupted:
        raise Interrupted("the plot shows the rows until then")
    if cut_short:
        raise typer.Exit(UNREACHABLE)


def draw(rows: pa.Table, columns: list[str], title: str, path: Path) -> None:
    """Plot `columns` against the first column of `rows`, a time, and write a PNG file."""
    # Not at the top: importing it takes a second.
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, dpi=DPI, layout="constrained")
    axes = figure.subplots()
    times = rows.column(0).to_numpy()
    for column in columns:
        axes.plot(times, rows[column].to_numpy(), label=column, linewidth=1)
    axes.set(
        title=title,
        xlabel=f"{rows.column_names[0].replace('_', ' ')} (UTC)",
        ylabel=columns[0] if len(columns) == 1 else None,
    )
    if len(columns) > 1:
        axes.legend()
    axes.grid(alpha=0.3)
    locator = AutoDateLocator()  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    figure.savefig(path, format="png")
