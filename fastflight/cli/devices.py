"""Commands on whole devices: `info`, `reset`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fastflight.cli import screen
from fastflight.cli.arguments import opened
from fastflight.cli.interruption import interruptible
from fastflight.cli.options import AsJson, DeviceName, Interrupt
from fastflight.cli.server_options import DEFAULT_SERVER, Server, with_device_options


@interruptible
@with_device_options
def info(
    device: DeviceName = None, interrupt: Interrupt = False, json: AsJson = False, server: Server = DEFAULT_SERVER
) -> None:
    """Show a board's firmware, memory, storage and features."""
    with server.boards() as boards, opened(boards, device, interrupt=interrupt) as board:
        facts = board.info()
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
    with server.boards() as boards, opened(boards, device, interrupt=interrupt) as board:
        board.reset(hard=hard)


def _format_value(value: Any) -> str:
    if value is None or value == "":
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return screen.printable(", ".join(map(str, value)))
    return screen.printable(str(value))
