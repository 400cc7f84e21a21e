"""`fastflight tail`: what a board says, as it says it."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Protocol

import pyarrow as pa
import typer
from rich.live import Live
from rich.text import Text

from fastflight.cli import screen
from fastflight.cli.asking import HERE, Server, asking
from fastflight.cli.board import DeviceName
from fastflight.cli.exits import UNREACHABLE, Interrupted, asynchronous
from fastflight.cli.options import Columns, ModeOption, Ticks
from fastflight.cli.preview import rows_of
from fastflight.cli.target import AsJson, schema_of
from fastflight.client import Missed
from fastflight.service.requests import SessionFormat
from fastflight.sources.following import DRAINING, GONE
from fastflight.tables import Layout, open_writer

# What a server says of a recording that goes well.
RECORDING = "recording"
# Ends that nobody asked for: more would have come.
CUT_SHORT = {DRAINING: "error: the server shuts down", GONE: "error: the device is gone"}
# The status line counts over this long: long enough to be read, short enough to follow a change.
RATE_SECONDS = 1.0

Show = Callable[[pa.RecordBatch], None]


@asynchronous
@asking
async def tail(
    device: DeviceName,
    since: Annotated[
        float | None, typer.Option("--since", min=0, metavar="SECONDS", help="Begin so far back, if it is still kept.")
    ] = None,
    lines: Annotated[int | None, typer.Option("--lines", "-n", min=1, metavar="N", help="End after N rows.")] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0, metavar="N", help="End after so many seconds.")
    ] = None,
    format: Annotated[
        SessionFormat, typer.Option("--format", help="jsonl and csv need --schema; their lines become columns.")
    ] = "lines",
    schema: Annotated[
        str | None, typer.Option("--schema", metavar="NAME=TYPE,...", help="The columns of jsonl and csv lines.")
    ] = None,
    columns: Columns = None,
    ticks: Ticks = None,
    requests: Annotated[
        bool, typer.Option("--requests", help="Also show what requests send to the device and are answered, as bytes.")
    ] = False,
    raw: Annotated[bool, typer.Option("--raw", help="The device's bytes as they are; on a terminal as text.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Rows as CSV.")] = False,
    json: AsJson = False,
    reconnect: Annotated[bool, typer.Option("--reconnect", help="Go on when the device is gone and back.")] = False,
    mode: ModeOption = "async",
    server: Server = HERE,
) -> None:
    """Follow what a device says, without interrupting its program. Ctrl-C ends it."""
    one_way(raw, as_csv, json, columns)
    asked: SessionFormat = "bytes" if raw or (requests and format == "lines") else format
    async with (
        server.client() as client,
        await client.session(
            device,
            since_seconds=since,
            limit_rows=lines,
            limit_seconds=seconds,
            format=asked,
            schema=schema_of(schema),
            columns=columns.split(",") if columns else None,
            ticks=ticks,
            flush_ms=50,
            reconnect=reconnect,
            requests=requests,
            mode=mode,
        ) as stream,
    ):
        show = printer(stream.schema, raw=raw, as_csv=as_csv, json=json)
        await follow(device, stream, show, quiet=raw or json or as_csv)


def one_way(raw: bool, as_csv: bool, json: bool, columns: str | None) -> None:
    """Refuse several ways to print, and columns of what has none."""
    if raw + as_csv + json > 1:
        raise typer.BadParameter("one of --raw, --csv and --json")
    if raw and columns:
        raise typer.BadParameter("--raw is the device's bytes alone: leave --columns out")


def printer(schema: pa.Schema, *, raw: bool, as_csv: bool, json: bool, dated: bool = False) -> Show:
    """What prints batches; as text with times, and dates if wanted, where nothing else is asked for."""
    if raw:
        return _raw()
    if json:
        return _json
    return _csv(schema) if as_csv else partial(_text, when=local_date if dated else local)


class SessionStream(Protocol):
    """The rows of a session, live or recorded."""

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def gaps(self) -> list[Missed]: ...

    @property
    def missed(self) -> tuple[int, int]: ...

    @property
    def recording(self) -> str: ...

    @property
    def summary(self) -> Mapping[str, Any]: ...

    def __aiter__(self) -> AsyncIterator[pa.RecordBatch]: ...


async def follow(name: str, stream: SessionStream, show: Show, *, quiet: bool) -> None:
    """Show rows to the end; a summary on stderr, also when interrupted. Exit code 3 where server or device left."""
    status = StatusLine(name)
    recording = stream.recording
    console = screen.Screen(stderr=True)
    drawn = not quiet and console.is_terminal and sys.stdout.isatty()
    with (
        Live(status, console=console, transient=True, refresh_per_second=4, redirect_stdout=drawn)
        if drawn
        else _Plain()
    ):
        try:
            async for batch in stream:
                if recording != stream.recording:
                    recording = stream.recording
                    screen.complain(
                        f"{name}: recording is {recording}" if recording != RECORDING else f"{name}: recorded again"
                    )
                show(batch)
                status.add(batch.num_rows, stream.missed)
        except (asyncio.CancelledError, KeyboardInterrupt) as error:
            raise Interrupted(status.summary(stream.missed)) from error
    summary = stream.summary
    why = f" ({summary['why']})" if summary.get("why") else ""
    rejected = f", {summary['rejected']} lines set aside" if summary.get("rejected") else ""
    ended = summary.get("ended", "finished")
    screen.complain(f"{CUT_SHORT.get(ended, ended)}{why}: {status.summary(stream.missed)}{rejected}")
    if ended in CUT_SHORT:
        raise typer.Exit(UNREACHABLE)


class StatusLine:
    """How many rows, how fast, and what was missed."""

    def __init__(self, device: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._device = device
        self._clock = clock
        self._began = clock()
        self._rows = 0
        self._missed = ""
        self._rate = 0.0
        self._counted = (self._began, 0)

    def add(self, rows: int, missed: tuple[int, int]) -> None:
        self._rows += rows
        self._missed = in_words(missed)

    def summary(self, missed: tuple[int, int]) -> str:
        """All of it, in words."""
        return f"{self._rows:,} rows in {self._clock() - self._began:.1f} s{in_words(missed)}"

    def __rich__(self) -> Text:
        now = self._clock()
        since, rows = self._counted
        if now - since >= RATE_SECONDS:
            self._rate = (self._rows - rows) / (now - since)
            self._counted = (now, self._rows)
        return screen.cell(f"{self._device}  {self._rows:,} rows  {self._rate:.1f}/s{self._missed}", "dim")


def in_words(missed: tuple[int, int]) -> str:
    """What a reader that was too slow has missed; empty for nothing."""
    gaps, chunks = missed
    return f", missed {chunks:,} pieces of traffic in {gaps:,} gaps" if gaps else ""


class _Plain:
    """Nothing drawn."""

    def __enter__(self) -> None: ...

    def __exit__(self, *exc: object) -> None: ...


def _raw() -> Show:
    write = screen.bytes_writer()
    return lambda batch: write(b"".join(row["data"] for row in batch.to_pylist() if row["direction"] == "rx"))


def _json(batch: pa.RecordBatch) -> None:
    for row in rows_of(batch):
        screen.as_json(row)


def _csv(schema: pa.Schema) -> Show:
    writer = open_writer(Layout("csv"), schema)
    screen.lines(writer.begin().decode())
    return lambda batch: screen.lines(writer.encode(batch).decode())


def _text(batch: pa.RecordBatch, when: Callable[[datetime], str]) -> None:
    for row in rows_of(batch):
        received = row.pop("time", None)
        time = row.pop("board_time", None) or received
        row.pop("seq", None)
        if row.pop("request", False):
            row["direction"] = f"request {row['direction']}"
        before = f"{when(time)}  " if time is not None else ""
        screen.line(before + "  ".join(_printable(value) for value in row.values()))


def local(when: datetime) -> str:
    """A time of day here, in milliseconds."""
    return f"{when.astimezone():%H:%M:%S.%f}"[:-3]


def local_date(when: datetime) -> str:
    """A date and time here, in milliseconds."""
    return f"{when.astimezone():%Y-%m-%d %H:%M:%S.%f}"[:-3]


def _printable(value: Any) -> str:
    return screen.printable(value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value))
