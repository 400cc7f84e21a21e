"""Options that the commands share which serve: `serve`, `bridge`."""

from __future__ import annotations

from typing import Annotated

import typer

from fastflight.app.config import MAX_DRAIN_SECONDS

# Headings of groups of options in `--help`.
DEVICES, NETWORK, CLUSTER, RECORDINGS, LIMITS, ACCESS, LOGGING = (
    "Devices",
    "Network",
    "Cluster",
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
        help="An origin whose pages may send requests over HTTP, as in https://lab.example.org; may be given again.",
        rich_help_panel=NETWORK,
    ),
]
Drain = Annotated[
    float,
    typer.Option(
        "--drain",
        metavar="S",
        min=0,
        max=MAX_DRAIN_SECONDS,
        help="Seconds for open streams and connected tools to end by themselves at shutdown.",
        rich_help_panel=LIMITS,
    ),
]
RelayAllow = Annotated[
    list[str] | None,
    typer.Option(
        "--relay-allow",
        metavar="HOST:PORT",
        help="Let browsers open TCP streams to this address through the gateway, as in 127.0.0.1:2218; may be "
        "given again.",
        rich_help_panel=NETWORK,
    ),
]
