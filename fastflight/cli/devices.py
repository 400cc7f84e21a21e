"""Commands on whole devices: `info`, `reset`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fastflight.cli import screen
from fastflight.cli.arguments import device_name
from fastflight.cli.interruption import interruptible
from fastflight.cli.options import AsJson, DeviceName, Interrupt
from fastflight.cli.server_options import DEFAULT_SERVER, Server, with_device_options


@interruptible
@with_device_options
def info(
    device: DeviceName = None, interrupt: Interrupt = False, json: AsJson = False, server: Server = DEFAULT_SERVER
) -> None:
    """Show a board's firmware, memory, storage and features."""
    with server.client() as client:
        facts = client.info(device_name(client, device), interrupt=interrupt)
    if json:
        screen.as_json(facts)
        return
    width = max(map(len, facts), default=0)
    for key, value in facts.items():
        screen.line(f"{key.replace('_', ' '):{width}}  {_format_value(value)}")


@interruptible
@with_device_options
def reset(
    device: DeviceName = None,
    hard: Annotated[bool, typer.Option("--hard", help="Restart the chip, not only its program.")] = False,
    interrupt: Interrupt = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Restart a device."""
    with server.client() as client:
        client.reset(device_name(client, device), hard=hard, interrupt=interrupt)


def _format_value(value: Any) -> str:
    if value is None or value == "":
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return screen.printable(", ".join(map(str, value)))
    return screen.printable(str(value))
