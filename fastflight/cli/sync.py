"""`fastflight sync`: make a folder on a device equal to a local one, or the other way round."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from fastflight.cli import screen
from fastflight.cli.arguments import Target, device_first, place
from fastflight.cli.copies import Copies, globs_to_ignore
from fastflight.cli.exit_codes import usage_errors
from fastflight.cli.interruption import interruptible
from fastflight.cli.options import AsJson, Everything, Interrupt
from fastflight.cli.server_options import DEFAULT_SERVER, Server, with_device_options
from fastflight.client.local_files import is_left_out
from fastflight.client.options import FileOptions
from fastflight.errors import BusyError, TransportError
from fastflight.extras import needs

# How often `--watch` tries a device again that was busy or away.
RETRY_SECONDS = 2.0
# The longest that a folder may keep changing before it is copied.
MAX_CHANGING_SECONDS = 60.0


@interruptible
@with_device_options
def sync(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A local folder, or a folder on a device.")],
    to: Annotated[str, typer.Argument(metavar="TARGET", help="The folder to change: on a device, or a local one.")],
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Go on until Ctrl-C: copy again whenever the local folder changes.")
    ] = False,
    quiet: Annotated[
        float, typer.Option("--quiet", min=0.05, max=60.0, metavar="SECONDS", help="With --watch: wait for this pause.")
    ] = 0.5,
    delete: Annotated[bool, typer.Option("--delete", help="Remove files of TARGET that SOURCE does not have.")] = False,
    reset: Annotated[
        bool, typer.Option("--soft-reset", help="If files of the device changed, restart it, which runs main.py.")
    ] = False,
    everything: Everything = False,
    interrupt: Interrupt = False,
    json: AsJson = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Copy what differs between a local folder and a folder on a device, by digests that the board computes.

    SOURCE is copied to TARGET: one of the two is DEVICE:PATH. Files are compared with one request to the board.
    What .fastflightignore in the local folder lists is neither copied nor removed, as with `put -r`.
    With --watch the device may be unplugged or busy for a while: the copy is made when it is back.
    """
    here, there = place(source), place(to)
    with usage_errors():
        if isinstance(here, str) and isinstance(there, Target):
            if not Path(here).is_dir():
                raise typer.BadParameter(f"{here!r} is not a folder")
            ignore = [] if everything else globs_to_ignore(Path(here))
        elif isinstance(here, Target) and isinstance(there, str):
            if watch or reset:
                raise typer.BadParameter("--watch and --soft-reset are for copies to a device")
            ignore = [] if everything or not Path(there).is_dir() else globs_to_ignore(Path(there))
        else:
            raise typer.BadParameter("one of the two folders must be on a device, as DEVICE:PATH, and one must not")
    with server.boards(changes=isinstance(there, Target)) as boards:
        copies = Copies(boards, FileOptions(interrupt=interrupt), True, ignore=ignore, delete=delete, json=json)
        if isinstance(here, Target):
            at = here.of(boards)
            with device_first(boards, at.device):
                copies.copy_folder(at, Path(str(there)))
            return
        assert isinstance(there, Target)
        at = there.of(boards)
        with device_first(boards, at.device):
            _send(copies, Path(here), at, reset)
        if watch:
            _follow(copies, Path(here), at, reset, quiet)


def _send(copies: Copies, folder: Path, at: Target, reset: bool) -> None:
    tree = copies.copy_folder(folder, at)
    if reset and (tree.files or tree.removed):
        copies.boards.board(at.device).reset()


def _follow(copies: Copies, folder: Path, at: Target, reset: bool, quiet: float) -> None:
    """Copy the folder again after each change, until Ctrl-C. A device that is busy or away is tried again."""
    screen.complain(f"watching {folder}; Ctrl-C ends this")
    # At first: the folder may have changed between its copy and the start of the watch.
    behind, trouble = True, ""
    for changed in _changes(folder, copies.ignore, quiet):
        if not (changed or behind):
            continue
        try:
            _send(copies, folder, at, reset)
            behind, trouble = False, ""
        except (BusyError, TransportError) as error:
            if str(error) != trouble:
                screen.complain(f"{error}. It is tried again every {RETRY_SECONDS:g} s")
            behind, trouble = True, str(error)


def _changes(folder: Path, ignore: Sequence[str], quiet: float) -> Iterator[bool]:
    """Yield true when files were changed and have then not been changed for `quiet` seconds.

    Yield false after `RETRY_SECONDS` without a change.
    """
    with needs("watch", "sync --watch"):
        from watchfiles import watch
    top = os.path.realpath(folder)

    def counts(_: object, path: str) -> bool:
        return not is_left_out(os.path.relpath(path, top).replace(os.sep, "/"), ignore)

    milliseconds = round(RETRY_SECONDS * 1000)
    for changes in watch(
        top,
        watch_filter=counts,
        step=round(quiet * 1000),
        debounce=round(MAX_CHANGING_SECONDS * 1000),
        rust_timeout=milliseconds,
        yield_on_timeout=True,
    ):
        yield bool(changes)
