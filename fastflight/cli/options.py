"""Arguments and options that the commands on files share."""

from __future__ import annotations

from typing import Annotated, TypedDict

import typer

from fastflight.app.settings import MAX_DRAIN_SECONDS
from fastflight.service.requests import Format, Method, Mode

DevicePath = Annotated[str, typer.Argument(metavar="DEVICE:PATH", help="A path on a device.")]
FormatOption = Annotated[
    Format | None, typer.Option("--format", help="The file's format on the device; by its ending if left out.")
]
Record = Annotated[
    str | None, typer.Option("--record", metavar="STRUCT", help="One record of a packed file, as for struct: '<IfH'.")
]
Columns = Annotated[
    str | None,
    typer.Option("--columns", metavar="A,B,...", help="The columns to keep; for packed, the names of the fields."),
]
Ticks = Annotated[
    str | None,
    typer.Option("--ticks", metavar="COLUMN", help="A column of ticks_ms: gives board_time, by the server's clock."),
]
ModeOption = Annotated[Mode, typer.Option("--mode", help="How the server does it.")]
Recursive = Annotated[bool, typer.Option("--recursive", "-r", help="A folder, with the folders in it.")]
SkipUnchanged = Annotated[
    bool, typer.Option("--skip-unchanged", help="Move only what differs, by the digests that the board takes.")
]
Resume = Annotated[
    bool,
    typer.Option("--resume/--no-resume", help="Go on where a copy broke off, and leave its part if this one does."),
]
TransferOption = Annotated[
    Method, typer.Option("--transfer", help="How the bytes cross the line; auto is the fastest that the board can do.")
]
Deflate = Annotated[
    bool | None,
    typer.Option(
        "--deflate/--no-deflate",
        help="Compress on the line, where the board can. Left out: on lines known to be slower than 1 Mbaud.",
    ),
]


class How(TypedDict):
    """How bytes are to be moved, as the clients' methods take it."""

    transfer: Method
    deflate: bool | None
    mode: Mode
    interrupt: bool


# The groups of options that `serve --help` and others show.
DEVICES, NETWORK, RECORDINGS, LIMITS, ACCESS, LOGGING = (
    "Devices",
    "Network",
    "Recordings",
    "Limits",
    "Access",
    "Logging",
)

HttpOrigins = Annotated[
    list[str] | None,
    typer.Option(
        "--http-origin",
        metavar="URL",
        help="An origin whose pages may send requests over HTTP; may be given again.",
        rich_help_panel=NETWORK,
    ),
]
Drain = Annotated[
    float,
    typer.Option(
        "--drain",
        metavar="SECONDS",
        min=0,
        max=MAX_DRAIN_SECONDS,
        help="How long open streams have to end by themselves when the server shuts down.",
        rich_help_panel=LIMITS,
    ),
]
RelayAllow = Annotated[
    list[str] | None,
    typer.Option(
        "--relay-allow",
        metavar="HOST:PORT",
        help="Let browsers open TCP streams to this address through the gateway; may be given again.",
        rich_help_panel=NETWORK,
    ),
]
