"""`fastflight tail`: follow the live output of a device."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
import typer
from rich.live import Live
from rich.text import Text

from fastflight.cli import drawing, screen
from fastflight.cli.arguments import device_name, schema_of
from fastflight.cli.exit_codes import UNREACHABLE, Interrupted
from fastflight.cli.interruption import interruptible
from fastflight.cli.options import (
    AsCsv,
    AsJson,
    Columns,
    DeviceName,
    LineFormat,
    LineSchema,
    ModeOption,
    RawBytes,
    RowLimit,
    Since,
    TypedRows,
)
from fastflight.cli.preview import rows_of
from fastflight.cli.server_options import DEFAULT_SERVER, Server, with_device_options
from fastflight.errors import quantity
from fastflight.gap import Gap
from fastflight.service.choices import RecordedAs, SessionFormat
from fastflight.service.requests import DEVICE_GONE, LAYOUT_CHANGED, SERVER_DRAINING
from fastflight.tables import Layout, open_writer

if TYPE_CHECKING:
    from fastflight.client import FastFlightClient, RowStream

# The state of a recording without problems.
RECORDING = "recording"
# Ends of a session that the user did not ask for, and their messages.
CUT_SHORT = {SERVER_DRAINING: "error: the server shuts down", DEVICE_GONE: "error: the device is gone"}
# The status line updates its rate this often: slowly enough to be read, fast enough to follow a change.
RATE_SECONDS = 1.0

Show = Callable[[pa.RecordBatch], None]


@interruptible
@with_device_options
def tail(
    device: DeviceName = None,
    since: Since = None,
    lines: RowLimit = None,
    seconds: Annotated[float | None, typer.Option("--seconds", min=0, metavar="N", help="End after N seconds.")] = None,
    format: LineFormat = "lines",
    schema: LineSchema = None,
    as_: TypedRows = None,
    columns: Columns = None,
    requests: Annotated[bool, typer.Option("--requests", help="Also show the traffic of requests, as bytes.")] = False,
    raw: RawBytes = False,
    as_csv: AsCsv = False,
    json: AsJson = False,
    reconnect: Annotated[
        bool, typer.Option("--reconnect", help="Continue when the device disconnects and comes back.")
    ] = False,
    mode: ModeOption = "async",
    server: Server = DEFAULT_SERVER,
) -> None:
    """Show the live output of a device, without interrupting its program, until Ctrl-C.

    With --as rows, what it prints becomes columns. When these change, the output goes on with the new ones.
    """
    check_output_options(raw, as_csv, json, columns)
    as_ = typed_rows(as_, format, schema, raw)
    row_format: SessionFormat = "bytes" if raw or as_ or (requests and format == "lines") else format
    with server.client() as client:
        device = device_name(client, device)
        for stream in sessions(
            client,
            device,
            since_seconds=since,
            limit_rows=lines,
            limit_seconds=seconds,
            format=row_format,
            schema=schema_of(schema),
            as_=as_,
            columns=columns.split(",") if columns else None,
            flush_ms=50,
            reconnect=reconnect,
            requests=requests,
            mode=mode,
        ):
            show = GapReporter(stream, printer(stream.schema, raw=raw, as_csv=as_csv, json=json, named=bool(as_)))
            follow(device, stream, show, quiet=raw or json or as_csv)


def typed_rows(as_: RecordedAs | None, format: SessionFormat, schema: str | None, raw: bool) -> RecordedAs | None:
    """Return how a session is read: as typed rows, if these are asked for or there is no schema for its lines."""
    if as_ is not None and (raw or format != "lines" or schema is not None):
        raise typer.BadParameter("--as rows takes the device's own layout: leave --format, --schema and --raw out")
    return "rows" if as_ is not None or (format in ("jsonl", "csv") and schema is None and not raw) else None


def sessions(
    client: FastFlightClient,
    device: str,
    *,
    limit_rows: int | None = None,
    limit_seconds: float | None = None,
    **keys: Any,
) -> Iterator[RowStream]:
    """Yield the session of a device. If its layout changes, yield the next session, which goes on there."""
    began, rows = time.monotonic(), 0
    while True:
        with client.session(
            device,
            limit_rows=None if limit_rows is None else max(0, limit_rows - rows),
            limit_seconds=None if limit_seconds is None else max(0.0, began + limit_seconds - time.monotonic()),
            **keys,
        ) as stream:
            yield stream
        if stream.summary.get("ended") != LAYOUT_CHANGED:
            return
        rows += stream.summary["rows"]
        keys = {**keys, "since_seconds": None, "since_seq": stream.summary["next_seq"]}


def check_output_options(raw: bool, as_csv: bool, json: bool, columns: str | None) -> None:
    """Refuse options that exclude each other: several output formats, or `--columns` with `--raw`."""
    if raw + as_csv + json > 1:
        raise typer.BadParameter("give only one of --raw, --csv and --json")
    if raw and columns:
        raise typer.BadParameter("--raw prints bytes without columns: leave --columns out")


def printer(
    schema: pa.Schema, *, raw: bool, as_csv: bool, json: bool, dated: bool = False, named: bool = False
) -> Show:
    """Return a function that prints batches. By default as text, each row with its time, and with `dated` its date.

    With `named`, text has the names of the columns.
    """
    if raw:
        return _bytes_printer()
    if json:
        return _print_json
    if as_csv:
        return _csv_printer(schema)
    return partial(_print_text, format_time=local_date if dated else local_time, named=named)


def follow(
    name: str, stream: RowStream, show: Show, *, quiet: bool, rows: Iterable[pa.RecordBatch] | None = None
) -> None:
    """Print the rows of `stream` with `show` until it ends, then a summary on stderr. `quiet`: no status line.

    `rows` are those of `stream`, if they are to be taken in another way.

    Exit code 3 if the server or the device ended the stream. Raises `Interrupted`, with the summary, on Ctrl-C.
    """
    status = StatusLine(name)
    recording = stream.recording
    console = drawing.Screen(stderr=True)
    drawn = not quiet and console.is_terminal and sys.stdout.isatty()
    with (
        Live(status, console=console, transient=True, refresh_per_second=4, redirect_stdout=drawn)
        if drawn
        else nullcontext()
    ):
        try:
            for batch in stream if rows is None else rows:
                if recording != stream.recording:
                    recording = stream.recording
                    screen.complain(
                        f"{name}: recording is {recording}" if recording != RECORDING else f"{name}: recorded again"
                    )
                show(batch)
                status.add(batch.num_rows, stream.missed)
        except KeyboardInterrupt as error:
            raise Interrupted(status.summary(stream.missed)) from error
    summary = stream.summary
    why = f" ({summary['why']})" if summary.get("why") else ""
    rejected = f", {quantity(summary['rejected'], 'line')} rejected" if summary.get("rejected") else ""
    ended = summary.get("ended", "finished")
    screen.complain(f"{CUT_SHORT.get(ended, ended)}{why}: {status.summary(stream.missed)}{rejected}")
    if ended in CUT_SHORT:
        raise typer.Exit(UNREACHABLE)


class StatusLine:
    """The line on stderr with the number of rows, their rate, and the traffic that was missed."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._began = time.monotonic()
        self._rows = 0
        self._missed = ""
        self._rate = 0.0
        self._counted = (self._began, 0)

    def add(self, rows: int, missed: tuple[int, int]) -> None:
        self._rows += rows
        self._missed = format_missed(missed)

    def summary(self, missed: tuple[int, int]) -> str:
        """Return the number of rows, the time they took, and what was missed, as text."""
        return f"{quantity(self._rows, 'row')} in {time.monotonic() - self._began:.1f} s{format_missed(missed)}"

    def __rich__(self) -> Text:
        now = time.monotonic()
        since, rows = self._counted
        if now - since >= RATE_SECONDS:
            self._rate = (self._rows - rows) / (now - since)
            self._counted = (now, self._rows)
        return drawing.cell(f"{self._device}  {quantity(self._rows, 'row')}  {self._rate:.1f}/s{self._missed}", "dim")


class GapReporter:
    """Shows batches with `show`. Before each, reports on stderr the gaps that come before its rows."""

    def __init__(self, stream: RowStream, show: Show) -> None:
        self._stream = stream
        self._show = show
        # The place of the last gap that was reported. An index would not do: a stream keeps only its newest gaps.
        self._last_reported = -1, -1

    def __call__(self, batch: pa.RecordBatch) -> None:
        place = batch.column("seq")[0].as_py() if "seq" in batch.schema.names and batch.num_rows else -1
        self._report(gap for gap in self._stream.gaps if gap.last < place)
        self._show(batch)

    def finish(self) -> None:
        """Report the gaps after the last batch."""
        self._report(self._stream.gaps)

    def _report(self, gaps: Iterable[Gap]) -> None:
        for gap in gaps:
            if (gap.first, gap.last) > self._last_reported:
                self._last_reported = gap.first, gap.last
                screen.complain(f"missing: {format_gap(gap)}")


def format_gap(gap: Gap) -> str:
    """Format a gap: why, between which times, and how many rows and bytes, as far as it is known."""
    start, end = (None if time is None else local_date(time) for time in (gap.from_time, gap.to_time))
    span = f"{start} to {end}" if start and end else f"since {start}" if start else f"until {end}" if end else ""
    rows = "" if gap.rows is None else f"{quantity(gap.rows, 'row')} ({gap.first} to {gap.last})"
    size = "" if gap.bytes is None else quantity(gap.bytes, "byte")
    return ", ".join(filter(None, (gap.why, span, rows, size, gap.detail)))


def format_missed(missed: tuple[int, int]) -> str:
    """Format the number of gaps, and of the rows known to be missing in them; empty if nothing is missing."""
    gaps, rows = missed
    lost = f" with {quantity(rows, 'row')} missing" if rows else ""
    return f", {quantity(gaps, 'gap')}{lost}" if gaps else ""


def _bytes_printer() -> Show:
    write = screen.bytes_writer()
    return lambda batch: write(b"".join(row["data"] for row in batch.to_pylist() if row["direction"] == "rx"))


def _print_json(batch: pa.RecordBatch) -> None:
    for row in rows_of(batch):
        screen.as_json(row)


def _csv_printer(schema: pa.Schema) -> Show:
    writer = open_writer(Layout("csv"), schema)
    screen.lines(writer.begin().decode())
    return lambda batch: screen.lines(writer.encode(batch).decode())


def _print_text(batch: pa.RecordBatch, format_time: Callable[[datetime], str], named: bool) -> None:
    for row in rows_of(batch):
        time = row.pop("time", None)
        row.pop("seq", None)
        if row.pop("request", False):
            row["direction"] = f"request {row['direction']}"
        prefix = f"{format_time(time)}  " if time is not None else ""
        values = (_printable(f"{name}={_text(value)}" if named else value) for name, value in row.items())
        screen.line(prefix + "  ".join(values))


def local_time(when: datetime) -> str:
    """Format the local time of day, with milliseconds."""
    return f"{when.astimezone():%H:%M:%S.%f}"[:-3]


def local_date(when: datetime) -> str:
    """Format the local date and time, with milliseconds."""
    return f"{when.astimezone():%Y-%m-%d %H:%M:%S.%f}"[:-3]


def _printable(value: Any) -> str:
    return screen.printable(value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value))


def _text(value: Any) -> str:
    """Return a value of a typed row; nothing for null."""
    return "" if value is None else str(value)
