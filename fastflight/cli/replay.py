"""`fastflight replay`: show a recording of a device, or save its rows to a file."""

from __future__ import annotations

import json as json_format
import os
import re
from collections.abc import Iterable, Iterator
from datetime import date, datetime, time
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
import typer

from fastflight.cli import screen
from fastflight.cli.arguments import schema_of
from fastflight.cli.exit_codes import usage_errors
from fastflight.cli.interruption import interruptible
from fastflight.cli.options import (
    AsCsv,
    AsJson,
    Columns,
    LineFormat,
    LineSchema,
    ModeOption,
    RawBytes,
    RowLimit,
    TypedRows,
)
from fastflight.cli.server_options import DEFAULT_SERVER, Server, with_server_options
from fastflight.cli.tail import GapReporter, check_output_options, follow, format_missed, printer, typed_rows
from fastflight.client.call import build
from fastflight.client.local_names import local_name
from fastflight.client.saving import SavedFile
from fastflight.errors import quantity
from fastflight.service.choices import SessionFormat
from fastflight.service.requests import Recording
from fastflight.tables import PARQUET

if TYPE_CHECKING:
    from fastflight.client import RowStream

RecordingName = Annotated[
    str, typer.Argument(metavar="NAME", help="A recording's name, as `fastflight recordings` shows it.")
]
Start = Annotated[
    str | None,
    typer.Option("--from", metavar="TIME|SEQ", help="Begin at a time (2026-11-20 08:00, or 08:00 today) or number."),
]
End = Annotated[
    str | None, typer.Option("--to", metavar="TIME|SEQ", help="End before this time, or after this sequence number.")
]
# The key of a Parquet file's metadata with the gaps of its rows, as JSON.
GAPS_KEY = "fastflight.gaps"
# A 64-bit number has at most twenty digits.
_NUMBER = re.compile(r"[0-9]{1,20}")
_TIME_OF_DAY = re.compile(r"\d\d?:\d\d(:\d\d(\.\d+)?)?")


@interruptible
@with_server_options
def replay(
    name: RecordingName,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Save the rows to a .parquet, .arrow, .csv, .jsonl or .mcap file; - prints them as CSV.",
        ),
    ] = None,
    start: Start = None,
    end: End = None,
    since: Annotated[
        float | None, typer.Option("--since", min=0, metavar="SECONDS", help="Begin this long ago.")
    ] = None,
    lines: RowLimit = None,
    speed: Annotated[
        float | None,
        typer.Option(
            "--speed",
            min=0.001,
            metavar="N",
            help="Replay in real time (1), or N times as fast. Left out: without pauses.",
        ),
    ] = None,
    format: LineFormat = "lines",
    schema: LineSchema = None,
    as_: TypedRows = None,
    columns: Columns = None,
    raw: RawBytes = False,
    as_csv: AsCsv = False,
    json: AsJson = False,
    mode: ModeOption = "async",
    server: Server = DEFAULT_SERVER,
) -> None:
    """Show a recording of a device: lines with their times, and what is missing and why.

    With -o FILE, save the rows instead. A device that is being recorded is included up to now.
    """
    check_output_options(raw, as_csv, json, columns)
    if output == "-":
        as_csv, output = not (raw or json), None
    if output is not None and (raw or as_csv or speed is not None):
        raise typer.BadParameter("-o FILE saves rows: leave --raw, --csv and --speed out")
    as_ = typed_rows(as_, format, schema, raw)
    request = recording_request(
        name,
        start,
        end,
        "bytes" if raw or as_ else format,
        schema,
        columns,
        as_=as_,
        since_seconds=since,
        limit_rows=lines,
        mode=mode,
    )
    if output is not None:
        save(request, output_path(output, name), server, json=json)
        return
    show_rows(request, server, raw=raw, as_csv=as_csv, json=json, speed=speed)


def recording_request(
    name: str,
    start: str | None,
    end: str | None,
    format: SessionFormat,
    schema: str | None,
    columns: str | None,
    **keys: Any,
) -> Recording:
    """Return the request for the rows of a recording. Values that do not fit are wrong usage."""
    with usage_errors():
        return build(
            Recording,
            name=name,
            format=format,
            schema=schema_of(schema),
            columns=columns.split(",") if columns else None,
            **_bound("--from", "from", start),
            **_bound("--to", "to", end),
            **keys,
        )


def show_rows(
    request: Recording,
    server: Server,
    *,
    raw: bool = False,
    as_csv: bool = False,
    json: bool = False,
    speed: float | None = None,
) -> None:
    """Print the rows of a recording, and between them what is missing."""
    with server.client() as client, client.read_request(request) as stream:
        if speed is not None and "time" not in stream.schema.names:
            raise typer.BadParameter("--speed needs the column time: keep it in --columns")
        show = GapReporter(
            stream, printer(stream.schema, raw=raw, as_csv=as_csv, json=json, dated=True, named=request.as_ is not None)
        )
        try:
            rows = stream if speed is None else paced(stream, speed)
            follow(request.name, stream, show, rows=rows, quiet=raw or json or as_csv)
        finally:
            show.finish()
        _report_damage(stream)


def save(request: Recording, path: Path, server: Server, *, json: bool = False) -> None:
    """Save the rows of a recording to `path`, as they arrive. The old file stays until all rows are there.

    A Parquet file also holds the gaps between its rows, in its metadata.
    """
    with server.client() as client, client.read_request(request) as stream:
        rows = 0
        with SavedFile(path, stream.schema) as file:

            def write(batch: pa.RecordBatch) -> None:
                nonlocal rows
                file.write(batch)
                rows += batch.num_rows

            follow(request.name, stream, write, quiet=json)
            if stream.gaps:
                file.add_metadata({GAPS_KEY: json_format.dumps([gap.details() for gap in stream.gaps])})
        _report_damage(stream)
        if json:
            result = {"name": request.name, "output": str(path), **stream.summary, "rows": rows, "size": file.bytes}
            screen.as_json(result)
        else:
            screen.line(f"{path}: {screen.size(file.bytes)}, {quantity(rows, 'row')}{format_missed(stream.missed)}")


def output_path(place: str, name: str) -> Path:
    """Return the path of the output file: `place`, or `name`.parquet in it if it is a folder."""
    path = Path(place)
    if path.is_dir():
        return path / f"{local_name(name)}{PARQUET}"
    if place.endswith(("/", os.sep)) or not path.parent.is_dir():
        folder = path if place.endswith(("/", os.sep)) else path.parent
        raise typer.BadParameter(f"{str(folder)!r} is not a folder: make it first")
    return path


def _report_damage(stream: RowStream) -> None:
    for place in stream.summary.get("damage", ()):
        screen.complain(f"damaged: {place}")


def paced(batches: Iterable[pa.RecordBatch], speed: float) -> Iterator[pa.RecordBatch]:
    """Yield rows with the pauses that they were recorded with, `speed` times as fast."""
    began, first = monotonic(), None
    for batch in batches:
        # A row without a time gets that of the next row; at the end of a batch, of the previous one.
        times = pc.fill_null_forward(pc.fill_null_backward(batch.column("time").cast(pa.int64()))).to_pylist()
        if not times or times[0] is None:
            yield batch
            continue
        if first is None:
            first = times[0]
        at = 0
        while at < len(times):
            sleep(max(0.0, began + (times[at] - first) / 1e6 / speed - monotonic()))
            due = first + (monotonic() - began) * 1e6 * speed
            end = next((i for i in range(at + 1, len(times)) if times[i] > due), len(times))
            yield batch.slice(at, end - at)
            at = end


def _bound(option: str, key: str, text: str | None) -> dict[str, Any]:
    """Parse the value of `--from` or `--to`. Return it under the request's key: `<key>_seq` or `<key>_time`."""
    if text is None:
        return {}
    if _NUMBER.fullmatch(text):
        return {f"{key}_seq": int(text)}
    try:
        if _TIME_OF_DAY.fullmatch(text):
            return {
                f"{key}_time": datetime.combine(
                    date.today(), time.fromisoformat(text if text[2] == ":" else f"0{text}")
                )
            }
        return {f"{key}_time": datetime.fromisoformat(text)}
    except ValueError as error:
        raise typer.BadParameter(f"{option} {text}: neither a time, as in 2026-11-20 08:00, nor a number") from error
