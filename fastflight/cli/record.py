"""`fastflight record` and `recordings`: record the traffic of a device, and list recordings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Annotated

import typer

from fastflight.cli import screen
from fastflight.cli.interruption import interruptible
from fastflight.cli.options import AsJson
from fastflight.cli.server_options import DEFAULT_SERVER, Server, with_server_options
from fastflight.cli.tail import format_gap
from fastflight.errors import quantity
from fastflight.gap import Gap


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


@interruptible
@with_server_options
def recordings(json: AsJson = False, server: Server = DEFAULT_SERVER) -> None:
    """List the recordings of the server."""
    with server.client() as client:
        rows = [
            {**asdict(each), "newest_gap": each.newest_gap and each.newest_gap.details()}
            for each in client.recordings()
        ]
    for row in rows:
        del row["folder"]  # empty here: a server sends it only when a recording starts
    if json:
        screen.as_json(rows)
        return
    if not rows:
        screen.complain("no recordings yet: `fastflight record DEVICE` begins one")
    cells = [
        (
            row["name"],
            f"{row['rows']:,}",
            screen.size(row["bytes"]),
            _format_minute(row["first_time"]),
            _format_minute(row["last_time"]),
            str(row["next_seq"]),
            f"{row['lost']:,}",
            f"{row['gaps']:,}",
            row["state"] + _format_damage(row["damage"]),
        )
        for row in rows
    ]
    headings = ("name", "rows", "size", "from", "to", "next", "lost", "gaps", "state")
    screen.table(headings, cells, right=("rows", "size", "next", "lost", "gaps"))
    for row in rows:
        if row["newest_gap"] is not None:
            screen.complain(f"{row['name']}: newest gap: {format_gap(Gap.of(row['newest_gap']))}")


def _format_damage(places: Sequence[str]) -> str:
    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    return f", damaged: {places[0]}{more}" if places else ""


def _format_minute(when: datetime | None) -> str:
    return "-" if when is None else f"{when.astimezone():%Y-%m-%d %H:%M}"
