"""`fastflight replay`: what a device said, out of its recording."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import date, datetime, time
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
import typer

from fastflight.cli import screen
from fastflight.cli.asking import HERE, Server, asking
from fastflight.cli.exits import asynchronous
from fastflight.cli.offline import OfflineRows, offline
from fastflight.cli.options import Columns, ModeOption, Ticks
from fastflight.cli.tail import SessionStream, Show, follow, one_way, printer
from fastflight.cli.target import AsJson, schema_of
from fastflight.client import Missed
from fastflight.client.call import build
from fastflight.service.requests import Recording, SessionFormat

RecordingName = Annotated[
    str, typer.Argument(metavar="NAME", help="A recording's name, as `fastflight recordings` shows it.")
]
Folder = Annotated[
    Path | None,
    typer.Option(
        "--recordings", metavar="DIR", help="Read this folder of recordings here, also while a server writes to it."
    ),
]
# 64 bits have twenty digits.
_NUMBER = re.compile(r"[0-9]{1,20}")
_TIME_OF_DAY = re.compile(r"\d\d?:\d\d(:\d\d(\.\d+)?)?")


@asynchronous
@asking
async def replay(
    name: RecordingName,
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME|SEQ", help="Begin here: 2026-11-20 08:00, 08:00 (today), or a number."),
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", metavar="TIME|SEQ", help="End before this time, or after this number.")
    ] = None,
    since: Annotated[float | None, typer.Option("--since", min=0, metavar="SECONDS", help="Begin so far back.")] = None,
    lines: Annotated[int | None, typer.Option("--lines", "-n", min=1, metavar="N", help="End after N rows.")] = None,
    speed: Annotated[
        float | None,
        typer.Option("--speed", min=0.001, metavar="N", help="As fast as it came (1), or N times as fast."),
    ] = None,
    format: Annotated[
        SessionFormat, typer.Option("--format", help="jsonl and csv need --schema; their lines become columns.")
    ] = "lines",
    schema: Annotated[
        str | None, typer.Option("--schema", metavar="NAME=TYPE,...", help="The columns of jsonl and csv lines.")
    ] = None,
    columns: Columns = None,
    ticks: Ticks = None,
    raw: Annotated[bool, typer.Option("--raw", help="The device's bytes as they are; on a terminal as text.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Rows as CSV.")] = False,
    json: AsJson = False,
    recordings: Folder = None,
    mode: ModeOption = "async",
    server: Server = HERE,
) -> None:
    """Show what was recorded of a device: lines with their times, and where some are missing, why."""
    one_way(raw, as_csv, json, columns)
    request = build(
        Recording,
        name=name,
        since_seconds=since,
        limit_rows=lines,
        format="bytes" if raw else format,
        schema=schema_of(schema),
        columns=columns.split(",") if columns else None,
        ticks=ticks,
        mode=mode,
        **_edge("--from", "from", start),
        **_edge("--to", "to", end),
    )
    async with _opened(request, recordings, server) as stream:
        if speed is not None and "time" not in stream.schema.names:
            raise typer.BadParameter("--speed goes by the column time: keep it in --columns")
        show = Told(stream, printer(stream.schema, raw=raw, as_csv=as_csv, json=json, dated=True))
        try:
            await follow(name, stream if speed is None else Paced(stream, speed), show, quiet=raw or json or as_csv)
        finally:
            show.rest()
        for place in stream.summary.get("damage", ()):
            screen.complain(f"damaged: {place}")


@asynccontextmanager
async def _opened(request: Recording, folder: Path | None, server: Server) -> AsyncIterator[SessionStream]:
    if folder is not None:
        yield OfflineRows(await offline(folder).aread(request))
        return
    async with server.client() as client, await client.read_request(request) as stream:
        yield stream


class Told:
    """Shows batches, and on stderr before each what is missing there."""

    def __init__(self, stream: SessionStream, show: Show) -> None:
        self._stream = stream
        self._show = show
        # The last that is missing of what was told: a stream keeps its newest gaps alone.
        self._told = -1

    def __call__(self, batch: pa.RecordBatch) -> None:
        place = batch.column("seq")[0].as_py() if "seq" in batch.schema.names and batch.num_rows else -1
        self._tell(gap for gap in self._stream.gaps if gap.last < place)
        self._show(batch)

    def rest(self) -> None:
        """After the last batch."""
        self._tell(self._stream.gaps)

    def _tell(self, gaps: Iterable[Missed]) -> None:
        for gap in gaps:
            if gap.last <= self._told:
                continue
            self._told = gap.last
            pieces = gap.last - gap.first + 1
            reason = gap.reason or "not known why"
            screen.complain(f"missing {pieces:,} pieces of traffic, {gap.first} to {gap.last}: {gap.where or reason}")


class Paced:
    """A stream at the pace that its rows came at, `speed` times as fast."""

    def __init__(self, stream: SessionStream, speed: float) -> None:
        self._stream = stream
        self._speed = speed

    @property
    def schema(self) -> pa.Schema:
        return self._stream.schema

    @property
    def gaps(self) -> list[Missed]:
        return self._stream.gaps

    @property
    def missed(self) -> tuple[int, int]:
        return self._stream.missed

    @property
    def recording(self) -> str:
        return self._stream.recording

    @property
    def summary(self) -> Mapping[str, Any]:
        return self._stream.summary

    async def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        clock = asyncio.get_running_loop().time
        began, first = clock(), None
        async for batch in self._stream:
            # Rows without a time come with those after them.
            times = pc.fill_null_forward(pc.fill_null_backward(batch.column("time").cast(pa.int64()))).to_pylist()
            if not times or times[0] is None:
                yield batch
                continue
            if first is None:
                first = times[0]
            at = 0
            while at < len(times):
                await asyncio.sleep(max(0.0, began + (times[at] - first) / 1e6 / self._speed - clock()))
                due = first + (clock() - began) * 1e6 * self._speed
                end = next((i for i in range(at + 1, len(times)) if times[i] > due), len(times))
                yield batch.slice(at, end - at)
                at = end


def _edge(option: str, which: str, text: str | None) -> dict[str, Any]:
    """A number or a time on the command line, as the request has it."""
    if text is None:
        return {}
    if _NUMBER.fullmatch(text):
        return {f"{which}_seq": int(text)}
    try:
        if _TIME_OF_DAY.fullmatch(text):
            return {
                f"{which}_time": datetime.combine(
                    date.today(), time.fromisoformat(text if text[2] == ":" else f"0{text}")
                )
            }
        return {f"{which}_time": datetime.fromisoformat(text)}
    except ValueError as error:
        raise typer.BadParameter(f"{option} {text}: neither a time, as in 2026-11-20 08:00, nor a number") from error
