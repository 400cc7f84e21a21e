"""What a shell offers when Tab is pressed: names of devices. Commands and options are completed by typer."""

from __future__ import annotations

import typer

from fastflight.errors import FastFlightError


def device_names(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of the server's devices that begin with `incomplete`. None, if the server cannot be asked.

    The server is the one of the options that are typed already, or of the environment.
    """
    from fastflight.cli.server_options import SERVER_OPTIONS, Server

    given = {name: context.params.get(name) for name in SERVER_OPTIONS}
    try:
        with Server(given.pop("server"), given).client() as client:
            return [each.name for each in client.devices() if each.name.startswith(incomplete)]
    except (FastFlightError, typer.Exit, typer.BadParameter):
        return []
