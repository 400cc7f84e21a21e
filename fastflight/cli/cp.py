"""`fastflight cp`: copy files and folders as they are, between this computer and devices."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastflight.cli.arguments import Target, last_name, opened, place
from fastflight.cli.copies import Copies, check_distinct, globs_to_ignore
from fastflight.cli.exit_codes import usage_errors
from fastflight.cli.globs import is_glob, matches
from fastflight.cli.interruption import interruptible
from fastflight.cli.options import AsJson, Everything, Interrupt, Recursive, SkipUnchanged
from fastflight.cli.server_options import DEFAULT_SERVER, Server, with_device_options
from fastflight.client.local_names import local_path
from fastflight.client.options import FileOptions
from fastflight.errors import FileMissing

if TYPE_CHECKING:
    from fastflight.cli.server_options import Boards
    from fastflight.client.board import Board


@dataclass(frozen=True, slots=True)
class _Source:
    """A file or folder that is copied."""

    place: Target | Path
    is_folder: bool
    # The name of the copy in a target folder. Empty for a folder whose content is copied: `app/`.
    name: str
    # Globs of what is left out of a local folder.
    ignore: tuple[str, ...] = ()


@interruptible
@with_device_options
def cp(
    sources: Annotated[
        list[str], typer.Argument(metavar="SOURCE", help="Files and folders to copy; globs on a device: 'demo:/*.csv'.")
    ],
    to: Annotated[str, typer.Argument(metavar="TARGET", help="The name of the copy, or a folder for the copies.")],
    recursive: Recursive = False,
    skip_unchanged: SkipUnchanged = None,
    everything: Everything = False,
    interrupt: Interrupt = False,
    json: AsJson = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Copy files as they are: to a device, from a device, or from one device to another.

    A path with a colon is on a device: demo:/a.csv, or :/a.csv on the only one. Other paths are on this computer.
    If TARGET is a folder, the copies in it get the names of the sources. Several sources need a folder.
    The old file stays until the new one is complete and verified.
    """
    places, into = [place(path) for path in sources], place(to)
    if isinstance(into, str) and (local := next((each for each in places if isinstance(each, str)), None)) is not None:
        raise typer.BadParameter(f"{local!r} and {into!r} are both on this computer: write DEVICE:PATH for a device")
    # What is wrong on this computer is reported before a server is called.
    known = [_local(each, recursive, everything) if isinstance(each, str) else each for each in places]
    with server.boards(changes=isinstance(into, Target)) as boards:
        found: list[_Source] = []
        for each in known:
            found += [each] if isinstance(each, _Source) else _on_device(boards, each, recursive, interrupt)
        for source, at in zip(found, _places(boards, found, into, recursive, interrupt), strict=True):
            options = FileOptions(interrupt=interrupt)
            copies = Copies(boards, options, skip_unchanged, ignore=source.ignore, json=json)
            if not source.is_folder:
                copies.copy_file(source.place, at)
            elif isinstance(at, Path) and at.exists() and not at.is_dir():
                raise typer.BadParameter(f"{str(at)!r} is not a folder: choose another place")
            else:
                copies.copy_folder(source.place, at)


def _local(name: str, recursive: bool, everything: bool) -> _Source:
    path = Path(name)
    if not name or not path.exists():
        raise typer.BadParameter(f"{name!r} does not exist")
    if not path.is_dir():
        return _Source(path, False, path.name)
    if not recursive:
        raise typer.BadParameter(f"{name!r} is a folder: use -r")
    with usage_errors():
        return _Source(path, True, last_name(name), () if everything else tuple(globs_to_ignore(path)))


def _on_device(boards: Boards, at: Target, recursive: bool, interrupt: bool) -> list[_Source]:
    """Return the file or folder of a device, or all that a glob matches."""
    at = at.of(boards)
    with opened(boards, at.device, interrupt=interrupt) as board:
        if is_glob(at.path):
            found = matches(board, at.path, folders=recursive)
            each = [(Target(at.device, entry.path), entry) for entry in found]
            return [_Source(place, entry.kind == "folder", place.name) for place, entry in each]
        is_folder = board.stat(at.path).kind == "folder"
    if is_folder and not recursive:
        raise typer.BadParameter(f"{at} is a folder: use -r")
    return [_Source(at, is_folder, at.name)]


def _places(
    boards: Boards, sources: list[_Source], to: Target | str, recursive: bool, interrupt: bool
) -> list[Target | Path]:
    """Return where each source is copied to: the target, or its own name in the target if that is a folder."""
    if isinstance(to, Target):
        to = to.of(boards)
        with opened(boards, to.device, interrupt=interrupt) as board:
            is_folder = to.path.endswith("/") or _is_folder(board, to.path)
    else:
        is_folder = Path(to).is_dir() or to.endswith(("/", os.sep))
        missing = Path(to) if is_folder else Path(to).parent
        if not missing.is_dir() and not recursive:
            raise typer.BadParameter(f"{str(missing)!r} is not a folder: make it first")
    if not is_folder:
        if len(sources) > 1:
            raise typer.BadParameter(f"'{to}' is not a folder: several sources need one")
        return [to if isinstance(to, Target) else Path(to)]
    check_distinct(source.name for source in sources if source.name)
    if isinstance(to, Target):
        folder = to.path.rstrip("/")
        return [Target(to.device, f"{folder}/{source.name}".rstrip("/") or "/") for source in sources]
    return [local_path(Path(to), source.name) if source.name else Path(to) for source in sources]


def _is_folder(board: Board, path: str) -> bool:
    try:
        return board.stat(path).kind == "folder"
    except FileMissing:
        return False
