"""`fastflight record`: record the traffic of a device."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fastflight.cli import screen
from fastflight.cli.interruption import interruptible
from fastflight.cli.options import AsJson
from fastflight.cli.server_options import DEFAULT_SERVER, Server, with_server_options


@interruptible
@with_server_options
def record(
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
        float | None,
        typer.Option("--seconds", min=0, metavar="N", help="With --to: end N seconds after the first byte."),
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
        from fastflight.cli import local_recordings  # not at the top: it loads the server's devices and recordings

        name = name or local_recordings.name_of(device)
        status = local_recordings.record_here(device, name, to, seconds)
        screen.as_json(asdict(status)) if json else screen.line(local_recordings.summary(status, to))
        return
    if name is not None or seconds is not None:
        raise typer.BadParameter("--name and --seconds need --to DIR")
    with server.client() as client:
        recorded = client.stop_recording(device) if stop else client.start_recording(device)
    show = f"To show them: fastflight replay {device}"
    if json:
        screen.as_json(asdict(recorded))
    elif stop:
        screen.line(f"{device}: recording stopped; {recorded.rows:,} rows are kept. {show}")
    else:
        folder = f" in {recorded.folder}" if recorded.folder else ""
        screen.line(f"{device}: {recorded.state}; {recorded.rows:,} rows so far{folder}. {show}")
