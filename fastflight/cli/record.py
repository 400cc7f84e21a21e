"""`fastflight record`: record the traffic of a device; `fastflight recordings`: list recordings."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from fastflight.app.settings import DEVICE_NAME
from fastflight.cli import screen
from fastflight.cli.exit_codes import Interrupted, asynchronous, usage_errors
from fastflight.cli.local_recordings import reader_of
from fastflight.cli.log import log_to_stderr
from fastflight.cli.options import AsJson
from fastflight.cli.replay import Folder
from fastflight.cli.server_options import DEFAULT_SERVER, Server, with_server_options
from fastflight.concurrency import Shards
from fastflight.device import Device, Inventory
from fastflight.errors import TransportError
from fastflight.sources import Recordings
from fastflight.sources.recordings import RecordingStatus, status_of
from fastflight.transport.url import parse_url, public_url

# The name of a recording if none can be made of the URL.
DEFAULT_NAME = "device"


@asynchronous
@with_server_options
async def record(
    device: Annotated[
        str, typer.Argument(metavar="DEVICE|URL", help="A device of the server; with --to, the URL of one.")
    ],
    stop: Annotated[bool, typer.Option("--stop", help="Stop recording.")] = False,
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="DIR", file_okay=False, help="Record here, without a server, until Ctrl-C."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="With --to: name of the recording; by default of the port."),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0, metavar="N", help="With --to: end after N seconds.")
    ] = None,
    json: AsJson = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Record a device on the server, or on this computer without a server (--to DIR).

    A server without --recordings stores them in fastflight/recordings in the data folder of its user.
    That is $XDG_DATA_HOME or ~/.local/share, ~/Library/Application Support on macOS, %LOCALAPPDATA% on Windows.

    The server records until --stop, or until it ends. Earlier recordings of the device stay.
    To record whenever the server runs, use `serve --record NAME`, or `record = true` in its fleet file.
    """
    if to is not None:
        if stop:
            raise typer.BadParameter("--stop is for a server; with --to, Ctrl-C stops recording")
        status = await _record_here(device, name or name_of(device), to, seconds)
        screen.as_json(asdict(status)) if json else screen.line(_summary(status, to))
        return
    if name is not None or seconds is not None:
        raise typer.BadParameter("--name and --seconds need --to DIR")
    async with server.client() as client:
        recorded = await (client.stop_recording(device) if stop else client.start_recording(device))
    if json:
        screen.as_json(asdict(recorded))
    elif stop:
        screen.line(f"{device}: recording stopped; {recorded.rows:,} rows are kept")
    else:
        folder = f" in {recorded.folder}" if recorded.folder else ""
        screen.line(f"{device}: {recorded.state}; {recorded.rows:,} rows are kept{folder}")


@asynchronous
@with_server_options
async def recordings(recordings: Folder = None, json: AsJson = False, server: Server = DEFAULT_SERVER) -> None:
    """List the recordings of the server, or of a local folder (--recordings)."""
    if recordings is not None:
        reader = reader_of(recordings)
        rows = [asdict(status_of(name, reader.log(name).statistics())) for name in reader.names()]
    else:
        async with server.client() as client:
            rows = [asdict(each) for each in await client.recordings()]
        for row in rows:
            del row["folder"]  # empty here: a server sends it only when a recording starts
    if json:
        screen.as_json(rows)
        return
    cells = [
        (
            row["name"],
            f"{row['rows']:,}",
            screen.size(row["bytes"]),
            _format_minute(row["first_time"]),
            _format_minute(row["last_time"]),
            str(row["next_seq"]),
            f"{row['lost']:,}",
            row["state"] + _format_damage(row["damage"]),
        )
        for row in rows
    ]
    headings = ("name", "rows", "size", "from", "to", "next", "lost", "state")
    screen.table(headings, cells, right=("rows", "size", "next", "lost"))


def name_of(url: str) -> str:
    """Make a name for the recording of a device from the end of its URL: `ttyACM0`, or `127.0.0.1-2218`."""
    rest = url.partition("?")[0].rpartition("://")[2].rstrip("/")
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", rest.rpartition("/")[2]).strip("-.")
    return name if DEVICE_NAME.fullmatch(name) else DEFAULT_NAME


async def _record_here(url: str, name: str, folder: Path, seconds: float | None) -> RecordingStatus:
    """Record a device to a folder, for `seconds` or until cancelled. Return the state of the recording.

    Raises `Interrupted` if cancelled. In each case everything that was received is stored.
    """
    if not DEVICE_NAME.fullmatch(name):
        raise typer.BadParameter(f"{name!r} cannot name a recording: use letters, digits, _ . -")
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
                await _wait_until_open(inventory.device(name))
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


async def _wait_until_open(device: Device) -> None:
    """Wait until the line is open. Raises `TransportError` at the first failure, though the device would try again."""
    changed, loop = asyncio.Event(), asyncio.get_running_loop()
    with device.tap.on_nudge(lambda: loop.call_soon_threadsafe(changed.set)):
        while not device.is_open:
            if device.trouble:
                raise TransportError(device.trouble, where=device.name, hint="Is it plugged in, and not in use?")
            await changed.wait()
            changed.clear()


def _summary(status: RecordingStatus, folder: Path) -> str:
    lost = f", {status.lost:,} pieces of traffic lost" if status.lost else ""
    return f"{status.name}: {status.rows:,} rows are kept in {folder}{lost}. Show them with fastflight replay"


def _format_damage(places: Sequence[str]) -> str:
    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    return f", damaged: {places[0]}{more}" if places else ""


def _format_minute(when: datetime | None) -> str:
    return "-" if when is None else f"{when.astimezone():%Y-%m-%d %H:%M}"
