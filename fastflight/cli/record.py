"""`fastflight record`: record the traffic of a device."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from fastflight.cli import screen
from fastflight.cli.interruption import interruptible
from fastflight.cli.options import AsJson
from fastflight.cli.server_options import DEFAULT_SERVER, Server, with_server_options
from fastflight.errors import quantity


@interruptible
@with_server_options
def record(
    device: Annotated[str, typer.Argument(metavar="DEVICE", help="A device of the server.")],
    stop: Annotated[bool, typer.Option("--stop", help="Stop recording.")] = False,
    json: AsJson = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Record a device on the server, until --stop. Earlier recordings of the device stay.

    A server without --recordings stores them in fastflight/recordings in the data folder of its user.
    That is $XDG_DATA_HOME or ~/.local/share, ~/Library/Application Support on macOS, %LOCALAPPDATA% on Windows.

    A recording ends with its server, too. To record whenever the server runs, use `serve --record NAME`, or
    `record = true` in its fleet file.
    """
    with server.client() as client:
        recorded = client.stop_recording(device) if stop else client.start_recording(device)
    show = f"To show them: fastflight replay {device}"
    if json:
        screen.as_json(asdict(recorded))
    elif stop:
        screen.line(f"{device}: recording stopped; {quantity(recorded.rows, 'row')} kept. {show}")
    else:
        folder = f" in {recorded.folder}" if recorded.folder else ""
        screen.line(f"{device}: {recorded.state}; {quantity(recorded.rows, 'row')} so far{folder}. {show}")
