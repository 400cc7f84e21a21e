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
