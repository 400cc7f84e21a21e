"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from fastflight.app.settings import MAX_DRAIN_SECONDS
from fastflight.service.requests import Format, Method, Mode

DevicePath = Annotated[str, typer.Argument(metavar="DEVICE:PATH", help="A path on a device.")]
FormatOption = Annotated[
    Format | None, typer.Option("--format", help="Format of the device's file. By default its ending decides.")
]
Record = Annotated[
    str | None,
    typer.Option(
        "--record", metavar="STRUCT", help="Layout of one record of a packed file, as for Python's struct: '<IfH'."
    ),
]
Columns = Annotated[
    str | None,
    typer.Option("--columns", metavar="A,B,...", help="Columns to keep; for packed, the names of its fields."),
]
Ticks = Annotated[
    str | None,
    typer.Option(
        "--ticks",
        metavar="COLUMN",
        help="Column with the board's ticks_ms; adds its time by the server's clock as board_time.",
    ),
]
ModeOption = Annotated[
    Mode, typer.Option("--mode", help="Work in the thread of the call (sync) or on an event loop (async).")
]
Recursive = Annotated[bool, typer.Option("--recursive", "-r", help="Copy a folder with its subfolders.")]
SkipUnchanged = Annotated[bool, typer.Option("--skip-unchanged", help="Copy only files that differ by size or digest.")]
Resume = Annotated[
    bool,
    typer.Option("--resume/--no-resume", help="Continue an interrupted copy; when interrupted, keep what was copied."),
]
TransferOption = Annotated[
    Method, typer.Option("--transfer", help="Encoding on the line; auto takes the fastest that the board supports.")
]
Deflate = Annotated[
    bool | None,
    typer.Option(
        "--deflate/--no-deflate",
        help="Compress on the line if the board can. By default only on lines known to be slower than 1 Mbaud.",
    ),
]

# Headings of groups of options in `--help`.
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
        help="Time for open streams and connected tools to end by themselves at shutdown.",
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
