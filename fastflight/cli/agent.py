"""`fastflight agent`: put the agent on a board, or remove it."""

from __future__ import annotations

from contextlib import suppress
from importlib import resources
from typing import TYPE_CHECKING

import typer

from fastflight.cli import screen
from fastflight.cli.arguments import opened
from fastflight.cli.interruption import interruptible
from fastflight.cli.options import DeviceName, Interrupt
from fastflight.cli.server_options import DEFAULT_SERVER, Server, with_device_options
from fastflight.errors import FileMissing

if TYPE_CHECKING:
    from fastflight.client.board import Board

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
        server.boards() as boards,
        opened(boards, device, interrupt=interrupt) as board,
        resources.as_file(resources.files("fastflight.device") / f"agent/{NAME}.py") as file,
    ):
        board.put_file(PATH, file)
        started = _programs(board)
        has_timer = "machine.Timer" in board.info()["features"]
    screen.line(f"{board.name}:{PATH} is there")
    if not has_timer:
        screen.complain(
            "This board has no machine.Timer, so the agent needs a program that uses asyncio: "
            f"asyncio.create_task({NAME}.task()). A program in `while True: time.sleep(1)` cannot be served."
        )
    if started:
        screen.line(f"{', '.join(started)} starts it. Reset the board: fastflight reset {board.name}")
    elif has_timer:
        screen.line(f"Start it in main.py: import {NAME}")
    screen.line(f"In a fleet file: agent = true in [devices.{board.name}]")


@app.command()
@interruptible
@with_device_options
def remove(device: DeviceName = None, interrupt: Interrupt = False, server: Server = DEFAULT_SERVER) -> None:
    """Remove the agent from a board. An agent that runs ends when the board is reset."""
    with server.boards() as boards, opened(boards, device, interrupt=interrupt) as board:
        started = _programs(board)
        board.remove(PATH)
    screen.line(f"{board.name}:{PATH} is gone")
    if started:
        screen.complain(f"{', '.join(started)} still imports {NAME}: remove the line, or the program ends there")


def _programs(board: Board) -> list[str]:
    """Return the programs on the board that mention the agent."""
    found = []
    for path in PROGRAMS:
        with suppress(FileMissing):
            if NAME.encode() in board.read_bytes(path, MAX_PROGRAM_BYTES):
                found.append(path)
    return found
