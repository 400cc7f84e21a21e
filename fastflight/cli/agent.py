"""`fastflight agent`: put the agent on a board, or remove it."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

import typer

from fastflight.cli import screen
from fastflight.cli.arguments import device_name
from fastflight.cli.interruption import interruptible
from fastflight.cli.options import DeviceName, Interrupt
from fastflight.cli.server_options import DEFAULT_SERVER, Server, with_device_options
from fastflight.errors import FileMissing

if TYPE_CHECKING:
    from fastflight.cli.interruptible_client import InterruptibleClient

app = typer.Typer(
    help="Put fastflight's agent on a board, for requests beside its program, or remove it.",
    no_args_is_help=True,
    add_completion=False,
)

NAME = "fastflight_agent"
PATH = f"/{NAME}.py"
# The files that a board runs when it starts.
PROGRAMS = ("/boot.py", "/main.py")
# More than the main program of a board has.
MAX_PROGRAM_BYTES = 256 * 1024


@app.command()
@interruptible
@with_device_options
def install(device: DeviceName = None, interrupt: Interrupt = False, server: Server = DEFAULT_SERVER) -> None:
    """Copy the agent to a board. A program that imports it can be used while it runs."""
    with (
        server.client() as client,
        resources.as_file(resources.files("fastflight.device") / f"agent/{NAME}.py") as file,
    ):
        name = device_name(client, device)
        client.put_file(name, PATH, file, interrupt=interrupt)
        started = _programs(client, name, interrupt)
        has_timer = "machine.Timer" in client.info(name, interrupt=interrupt)["features"]
    screen.line(f"{name}:{PATH} is there")
    if not has_timer:
        screen.complain(
            "This board has no machine.Timer, so the agent needs a program that uses asyncio: "
            f"asyncio.create_task({NAME}.task()). A program in `while True: time.sleep(1)` cannot be served."
        )
    if started:
        screen.line(f"{', '.join(started)} starts it. Reset the board: fastflight reset {name}")
    elif has_timer:
        screen.line(f"Start it in main.py: import {NAME}")
    screen.line(f"In a fleet file: agent = true in [devices.{name}]")


@app.command()
@interruptible
@with_device_options
def remove(device: DeviceName = None, interrupt: Interrupt = False, server: Server = DEFAULT_SERVER) -> None:
    """Remove the agent from a board. An agent that runs ends when the board is reset."""
    with server.client() as client:
        name = device_name(client, device)
        started = _programs(client, name, interrupt)
        client.remove(name, PATH, interrupt=interrupt)
    screen.line(f"{name}:{PATH} is gone")
    if started:
        screen.complain(f"{', '.join(started)} still imports {NAME}: remove the line, or the program ends there")


def _programs(client: InterruptibleClient, device: str, interrupt: bool) -> list[str]:
    """Return the programs on the board that mention the agent."""
    found = []
    for path in PROGRAMS:
        try:
            with client.file_bytes(device, path, limit=MAX_PROGRAM_BYTES, interrupt=interrupt) as pieces:
                if NAME.encode() in b"".join(pieces):
                    found.append(path)
        except FileMissing:
            pass
    return found
