"""`fastflight collect`: store the logs that boards write, and remove them from the boards."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastflight.cli import screen
from fastflight.cli.arguments import Target, target
from fastflight.cli.globs import is_glob
from fastflight.cli.interruption import interruptible
from fastflight.cli.options import Interrupt
from fastflight.cli.server_options import DEFAULT_SERVER, Server, with_device_options
from fastflight.errors import BusyError, FastFlightError, TransportError, UnknownName, quantity

if TYPE_CHECKING:
    from fastflight.cli.server_options import Boards
    from fastflight.client.board import Board

# Boards whose logs are read at the same time.
AT_ONCE = 16
MOST_MINUTES = 7 * 24 * 60
# How long a loop sleeps before it looks again whether its time has come.
SLEEP_SECONDS = 1.0
# With --every: the first pause after an error. Each further one is twice as long, up to --every.
FIRST_PAUSE_SECONDS = 1.0


@interruptible
@with_device_options
def collect(
    log: Annotated[str, typer.Argument(metavar="DEVICE:PATH", help="The log. DEVICE may be a glob: 'lab-*:/log.csv'.")],
    to: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="The folder in which each device gets a folder.")
    ],
    every: Annotated[
        float | None,
        typer.Option(
            "--every",
            min=0.01,
            max=MOST_MINUTES,
            metavar="MINUTES",
            help="Repeat until Ctrl-C, also if the server or a board is away for a while.",
        ),
    ] = None,
    parquet: Annotated[bool, typer.Option("--parquet", help="Convert each part to Parquet.")] = False,
    interrupt: Interrupt = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Store the log that a program on a board appends to, each line once, and remove it."""
    at = target(log)
    if every is None:
        if not _collect_all(server, at, to, parquet, interrupt):
            raise typer.Exit(1)
        return
    has_begun, pause = False, FIRST_PAUSE_SECONDS
    while True:
        until = time.monotonic() + 60 * every
        try:
            went_well = _collect_all(server, at, to, parquet, interrupt)
        except (TransportError, BusyError, UnknownName) as error:
            if not has_begun:  # a wrong name or address
                raise
            screen.complain(f"error: {error}")
            went_well = False
        has_begun = True
        if went_well:
            pause = FIRST_PAUSE_SECONDS
        else:
            seconds = min(pause, 60 * every)
            screen.complain(f"It is tried again in {seconds:g} s")
            until, pause = time.monotonic() + seconds, 2 * seconds
        while (rest := until - time.monotonic()) > 0:
            time.sleep(min(SLEEP_SECONDS, rest))


def _collect_all(server: Server, at: Target, to: Path, parquet: bool, interrupt: bool) -> bool:
    """Collect the log of each device once. Return whether all went well.

    An error of one device is reported. One of the server is raised.
    """
    with server.boards() as boards:
        names = _devices(boards, at)
        if len(names) == 1:
            return _collect(boards.board(names[0], interrupt=interrupt), at.path, to, parquet)
    with ThreadPoolExecutor(min(AT_ONCE, len(names))) as threads:
        return all(list(threads.map(lambda name: _connected(server, name, at.path, to, parquet, interrupt), names)))


def _devices(boards: Boards, at: Target) -> list[str]:
    """Return the names of the devices that are meant."""
    if not is_glob(at.device):
        return [at.of(boards).device]
    names = [each.name for each in boards.devices() if fnmatchcase(each.name, at.device)]
    if not names:
        raise UnknownName("no device has such a name", where=at.device, hint="List them: fastflight devices")
    return names


def _connected(server: Server, name: str, path: str, to: Path, parquet: bool, interrupt: bool) -> bool:
    with server.boards() as boards:
        return _collect(boards.board(name, interrupt=interrupt), path, to, parquet)


def _collect(board: Board, path: str, to: Path, parquet: bool) -> bool:
    """Collect one log. Report an error of the board, and return whether there was none."""
    from fastflight.client.collection import collect_log  # not at the top: `--help` starts faster

    try:
        collected = collect_log(board, path, to, "fastflight collect", parquet=parquet)
    except FastFlightError as error:
        screen.complain(f"error: {error}")
        return False
    for part in collected.parts:
        if parquet and part.suffix != ".parquet":
            screen.complain(f"{part} has lines that are no rows, and stays as it is")
    parts = quantity(len(collected.parts), "part")
    screen.line(f"{Target(board.name, path)}: {parts}, {screen.size(collected.bytes)} in {collected.folder}")
    return True
