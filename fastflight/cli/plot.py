"""`fastflight plot`: draw what a device prints, or a part of its recording, into a PNG file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
import typer

from fastflight.cli import screen
from fastflight.cli.arguments import device_name, schema_of
from fastflight.cli.exit_codes import UNREACHABLE, Interrupted
from fastflight.cli.interruption import interruptible
from fastflight.cli.options import DeviceName, ModeOption, Since
from fastflight.cli.replay import End, Start, recording_request
from fastflight.cli.server_options import DEFAULT_SERVER, Server, with_device_options
from fastflight.cli.tail import CUT_SHORT, sessions
from fastflight.client.local_names import local_name
from fastflight.errors import DataError, RequestError, quantity
from fastflight.extras import needs
from fastflight.service.choices import SessionFormat

if TYPE_CHECKING:
    from fastflight.client import FastFlightClient

# Inches, and dots per inch: 1200 x 600 pixels for a column, legible on paper and on a screen.
WIDTH, FIRST_HEIGHT, NEXT_HEIGHT = 8.0, 4.0, 2.5
DPI = 150
# A line is not drawn across a pause that is longer than this, and than so many usual ones.
GAP_SECONDS, GAP_INTERVALS = 1.0, 3
# Why a session has ended: Ctrl-C.
INTERRUPTED = "interrupted"


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
    start: Start = None,
    end: End = None,
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
    With --from or --to, plot a part of its recording instead: --from 0 is all of it.
    """
    if format == "csv" and schema is None:
        raise typer.BadParameter("csv lines have no names: give all columns with --schema")
    with needs("plot", "`plot`"):  # before rows are collected
        import matplotlib  # noqa: F401
    layout: dict[str, Any] = {"format": "bytes", "as_": "rows"}
    if format is not None or schema is not None:
        layout = {"format": format or "jsonl"}
        schema = schema or ",".join(f"{name}=double" for name in column)
    recorded = start is not None or end is not None
    if recorded and since is not None:
        raise typer.BadParameter("--since is for live output: leave it out, or --from and --to")
    with server.client() as client:
        device = device_name(client, device)
        if recorded:
            columns = ",".join(("time", *column))
            request = recording_request(device, start, end, schema=schema, columns=columns, mode=mode, **layout)
            with client.read_request(request) as stream:
                rows, ended = stream.to_arrow(), ""
        else:
            keys = {"schema": schema_of(schema), "columns": ["time", *column], "since_seconds": since, "mode": mode}
            rows, ended = live_rows(client, device, seconds, {**layout, **keys})
    interrupted = ended == INTERRUPTED
    if interrupted and not rows.num_rows:
        raise Interrupted("no rows came")
    if cut_short := CUT_SHORT.get(ended):
        screen.complain(f"{cut_short}: the plot shows the rows until then")
    require_values(rows, column, device, "in this part of the recording" if recorded else f"in {seconds:g} s")
    path = output or Path(f"{local_name(device)}.png")
    draw(rows, column, device, path)
    screen.line(f"{path}: {quantity(rows.num_rows, 'row')}")
    if interrupted:
        raise Interrupted("the plot shows the rows until then")
    if cut_short:
        raise typer.Exit(UNREACHABLE)


def require_values(rows: pa.Table, columns: list[str], device: str, where: str) -> None:
    """Raise `DataError` unless there are rows, and values in each of `columns`. `where`: as in "in 10 s"."""
    if not rows.num_rows:
        hint = "Show what there is with `fastflight tail`, or `fastflight replay`"
        raise DataError(f"no line with {', '.join(columns)} {where}", where=device, hint=hint)
    for name in columns:
        if name not in rows.column_names or rows[name].null_count == rows.num_rows:
            raise DataError(f"no line {where} has {name}", where=device, hint="Leave the column out")


def joined(tables: list[pa.Table], device: str) -> pa.Table:
    """Return the rows of all tables. `DataError` if one column has values of two kinds."""
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        hint = "Draw what comes next: begin again"
        raise DataError(f"a column has changed its type meanwhile ({error})", where=device, hint=hint) from error


def live_rows(client: FastFlightClient, device: str, seconds: float, keys: Mapping[str, Any]) -> tuple[pa.Table, str]:
    """Collect the rows of a session, and return them and why it ended: `INTERRUPTED` for Ctrl-C."""
    tables: list[pa.Table] = []
    is_told = False
    ended = ""
    try:
        for stream in sessions(client, device, limit_seconds=seconds, **keys):
            batches: list[pa.RecordBatch] = []
            try:
                for batch in stream:
                    batches.append(batch)
                    if batch.num_rows and not is_told:
                        is_told = True
                        screen.complain(f"{device}: rows for {seconds:g} s; Ctrl-C draws those until then")
            except KeyboardInterrupt:
                ended = INTERRUPTED
                stream.cancel()
            tables.append(pa.Table.from_batches(batches, stream.schema))
            if ended:
                break
    except RequestError as error:  # the board has begun to print other columns
        if not any(table.num_rows for table in tables):
            raise
        screen.complain(f"{error}: the plot shows the rows until then")
    return joined(tables, device), ended or stream.summary.get("ended", "")


def draw(rows: pa.Table, columns: list[str], title: str, path: Path) -> None:
    """Plot each of `columns` below the others, against the first column of `rows`, a time. Write a PNG file."""
    # Not at the top: importing it takes a second.
    from matplotlib import rcParams
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.figure import Figure

    rcParams["axes.formatter.useoffset"] = False  # values as they are, not as differences
    height = FIRST_HEIGHT + NEXT_HEIGHT * (len(columns) - 1)
    figure = Figure(figsize=(WIDTH, height), dpi=DPI, layout="constrained")
    panels = figure.subplots(len(columns), sharex=True, squeeze=False)[:, 0]
    times = rows.column(0).to_numpy()
    for number, (axes, column) in enumerate(zip(panels, columns, strict=True)):
        values = rows[column].to_numpy()
        for part in without_gaps(times):
            axes.plot(times[part], values[part], color=f"C{number}", linewidth=1, marker="." if len(part) == 1 else "")
        axes.set(ylabel=column)
        axes.grid(alpha=0.3)
    figure.align_ylabels()
    panels[0].set(title=title)
    panels[-1].set(xlabel=f"{rows.column_names[0].replace('_', ' ')} (UTC)")
    locator = AutoDateLocator()  # type: ignore[no-untyped-call]
    panels[-1].xaxis.set_major_locator(locator)
    panels[-1].xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    figure.savefig(path, format="png")


def without_gaps(times: Any) -> list[Any]:
    """Return the indexes of the rows between two gaps, for each such part of the rows. `times` are of NumPy."""
    import numpy as np

    pauses = np.diff(times) / np.timedelta64(1, "s")
    longest = max(GAP_SECONDS, GAP_INTERVALS * float(np.median(pauses))) if len(pauses) else 0.0
    return np.split(np.arange(len(times)), np.flatnonzero(pauses > longest) + 1)
