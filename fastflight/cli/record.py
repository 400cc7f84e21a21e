"""`fastflight record`: keep what a device says; `fastflight recordings`: what was kept."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from fastflight.app.settings import DEVICE_NAME
from fastflight.cli import screen
from fastflight.cli.asking import HERE, Server, asking
from fastflight.cli.exits import Interrupted, asynchronous, usage_errors
from fastflight.cli.log import log_to_stderr
from fastflight.cli.offline import reader_of
from fastflight.cli.replay import Folder
from fastflight.cli.target import AsJson
from fastflight.concurrency import Shards
from fastflight.device import Device, Inventory
from fastflight.errors import TransportError
from fastflight.sources import Recordings
from fastflight.sources.recordings import RecordingStatus, status_of
from fastflight.transport.url import parse_url, public_url

# The name for the recording of a URL that gives none.
UNNAMED = "device"


@asynchronous
@asking
async def record(
    device: Annotated[
        str, typer.Argument(metavar="DEVICE|URL", help="A device of the server; with --to, the URL of one.")
    ],
    stop: Annotated[bool, typer.Option("--stop", help="Record it no more.")] = False,
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="DIR", file_okay=False, help="Record here, without a server, until Ctrl-C."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="With --to: the recording's name; else the port's."),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0, metavar="N", help="With --to: end after so many seconds.")
    ] = None,
    json: AsJson = False,
    server: Server = HERE,
) -> None:
    """Have the server record a device from now on, or record one here (--to DIR).

    A server without --recordings keeps them in fastflight/recordings in the folder for its user's data: $XDG_DATA_HOME
    or ~/.local/share, ~/Library/Application Support on macOS, %LOCALAPPDATA% on Windows.

    The server records until --stop, or until it ends; `serve --record NAME`, or `record = true` in its fleet file, is
    for always. What was recorded before stays.
    """
    if to is not None:
        if stop:
            raise typer.BadParameter("--stop is for a server; here, Ctrl-C ends it")
        status = await _record_here(device, name or name_of(device), to, seconds)
        screen.as_json(told(status)) if json else screen.line(_summary(status, to))
        return
    if name is not None or seconds is not None:
        raise typer.BadParameter("--name and --seconds are for recording here: give --to DIR")
    async with server.client() as client:
        given = await (client.stop_recording(device) if stop else client.start_recording(device))
    if json:
        screen.as_json(asdict(given))
    elif stop:
        screen.line(f"{device}: no more recorded; {given.rows:,} rows are kept")
    else:
        folder = f" in {given.folder}" if given.folder else ""
        screen.line(f"{device}: {given.state}; {given.rows:,} rows are kept{folder}")


@asynchronous
@asking
async def recordings(recordings: Folder = None, json: AsJson = False, server: Server = HERE) -> None:
    """List recordings: those of the server, or of a folder."""
    if recordings is not None:
        reader = reader_of(recordings)
        rows = [told(status_of(name, reader.log(name).statistics())) for name in reader.names()]
    else:
        async with server.client() as client:
            rows = [asdict(each) for each in await client.recordings()]
        for row in rows:
            del row["folder"]  # told only to those who switch recording on
    if json:
        screen.as_json(rows)
        return
    shown = [
        (
            row["name"],
            f"{row['rows']:,}",
            screen.size(row["bytes"]),
            _minute(row["first_time"]),
            _minute(row["last_time"]),
            str(row["next_seq"]),
            f"{row['lost']:,}",
            row["state"] + _damage(row["damage"]),
        )
        for row in rows
    ]
    headings = ("name", "rows", "size", "from", "to", "next", "lost", "state")
    screen.table(headings, shown, right=("rows", "size", "next", "lost"))


def name_of(url: str) -> str:
    """A name for the recording of a device: the end of its URL, `ttyACM0` or `127.0.0.1-2218`."""
    rest = url.partition("?")[0].rpartition("://")[2].rstrip("/")
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", rest.rpartition("/")[2]).strip("-.")
    return name if DEVICE_NAME.fullmatch(name) else UNNAMED


def told(status: RecordingStatus) -> dict[str, Any]:
    """For a table and for JSON."""
    return asdict(status)


async def _record_here(url: str, name: str, folder: Path, seconds: float | None) -> RecordingStatus:
    """Record until `seconds` have passed, or until interrupted. Returns, or raises, when all is kept."""
    if not DEVICE_NAME.fullmatch(name):
        raise typer.BadParameter(f"{name!r} is no name for a recording: use letters, digits, _ . -")
    with usage_errors():
        parse_url(url)
    log_to_stderr(as_json=False)
    interrupted = False
    with ExitStack() as parts:
        shards = Shards()
        inventory = parts.enter_context(Inventory({name: url}, shards=shards))
        recordings = Recordings(folder, inventory, holder=f"fastflight record {public_url(url)}")
        parts.callback(recordings.close)
        parts.enter_context(shards)
        recordings.start(name)
        try:
            async with asyncio.timeout(seconds):
                await _opened(inventory.device(name))
                screen.complain(f"recording {public_url(url)} as {name} to {folder}")
                await asyncio.Event().wait()
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            interrupted = True
        status = recordings.stop(name)
    if interrupted:
        raise Interrupted(_summary(status, folder))
    return status


async def _opened(device: Device) -> None:
    """Wait for the line. `TransportError` where it cannot be opened: later, it would be tried again."""
    news, loop = asyncio.Event(), asyncio.get_running_loop()
    with device.tap.on_nudge(lambda: loop.call_soon_threadsafe(news.set)):
        while not device.is_open:
            if device.trouble:
                raise TransportError(device.trouble, where=device.name, hint="Is it plugged in, and free?")
            await news.wait()
            news.clear()


def _summary(status: RecordingStatus, folder: Path) -> str:
    lost = f", {status.lost:,} pieces of traffic lost" if status.lost else ""
    return f"{status.name}: {status.rows:,} rows are kept in {folder}{lost}. Look at them with fastflight replay"


def _damage(places: Sequence[str]) -> str:
    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    return f", damaged: {places[0]}{more}" if places else ""


def _minute(when: datetime | None) -> str:
    return "-" if when is None else f"{when.astimezone():%Y-%m-%d %H:%M}"
