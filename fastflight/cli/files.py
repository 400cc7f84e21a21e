"""Commands on files of a device: `ls`, `rm`, `mkdir`, `mv`, `hash`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from fastflight.cli import screen
from fastflight.cli.arguments import Target, opened, target
from fastflight.cli.exit_codes import REFUSED
from fastflight.cli.globs import expand, is_glob, matches
from fastflight.cli.interruption import interruptible
from fastflight.cli.options import AsJson, DevicePath, DevicePaths, Interrupt
from fastflight.cli.server_options import DEFAULT_SERVER, Server, with_device_options
from fastflight.errors import FileMissing, RequestError, quantity

if TYPE_CHECKING:
    from fastflight.client import Entry
    from fastflight.client.board import Board


@interruptible
@with_device_options
def ls(
    folder: Annotated[
        str, typer.Argument(metavar="[DEVICE][:PATH]", help="A folder on a device; the top folder without PATH.")
    ] = "",
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Include subfolders.")] = False,
    interrupt: Interrupt = False,
    json: AsJson = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """List a folder on a device, or what a glob matches: 'demo:/*.csv'."""
    at = target(folder, folder=True)
    if recursive and is_glob(at.path):
        raise typer.BadParameter("-r and a glob exclude each other: ** in a glob stands for any folders")
    with (
        server.boards(tables=False) as boards,
        opened(boards, (at := at.of(boards)).device, interrupt=interrupt) as board,
    ):
        entries = matches(board, at.path) if is_glob(at.path) else board.ls(at.path, recursive=recursive)
    if json:
        screen.as_json([asdict(entry) for entry in entries])
    elif entries:
        rows = [
            (
                screen.size(entry.size) if entry.kind == "file" else "-",
                entry.modified.strftime("%Y-%m-%d %H:%M") if entry.modified else "-",
                entry.path if entry.kind == "file" else entry.path.rstrip("/") + "/",
            )
            for entry in entries
        ]
        screen.table(("size", "modified", "path"), rows, right=("size",))
    else:
        screen.complain(f"{board.name}:{at.path} is empty")


@interruptible
@with_device_options
def rm(
    paths: DevicePaths,
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Remove folders with all they contain.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With -r, do not ask; for scripts.")] = False,
    interrupt: Interrupt = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Remove files or empty folders of a device.

    With -r, folders are removed with all they contain. On a terminal, the command says how much that is, and asks.
    """
    targets = [target(path) for path in paths]
    if recursive and not yes and not screen.can_ask():
        raise typer.BadParameter("rm -r asks before it removes, and nobody can answer here: add --yes")
    with server.boards(changes=True, tables=False) as boards:
        found = expand(boards, targets, interrupt=interrupt, folders=recursive)
        if not recursive:
            for at in found:
                with opened(boards, at.device, interrupt=interrupt) as board:
                    board.remove(at.path)
            return
        doomed = {}
        for at in _outermost([at.normal for at in found]):
            with opened(boards, at.device, interrupt=interrupt) as board:
                doomed[at] = _inside(board, at.path)
        if not yes:
            _ask(doomed)
        for at, entries in doomed.items():
            board = boards.board(at.device, interrupt=interrupt)
            # The longest path first: a folder comes after what it contains.
            for path in sorted((entry.path for entry in entries), key=lambda path: path.count("/"), reverse=True):
                board.remove(path)
            screen.line(f"{at}: {_amount(entries)} removed")


def _outermost(targets: Sequence[Target]) -> list[Target]:
    """Return `targets` without paths inside another target: a glob may match both a folder and its content."""
    folders = {(at.device, f"{at.path.rstrip('/')}/") for at in targets}

    def is_inside(at: Target) -> bool:
        return any(at.device == device and at.path != "/" and at.path.startswith(folder) for device, folder in folders)

    return [at for at in targets if not is_inside(at)]


def _inside(board: Board, path: str) -> list[Entry]:
    """Return the file or folder itself and everything in it. The top folder is not in its own list: it stays."""
    entry = board.stat(path)
    if entry.kind == "file":
        return [entry]
    below = board.ls(path, recursive=True)
    return below if path == "/" else [entry, *below]


def _ask(doomed: Mapping[Target, Sequence[Entry]]) -> None:
    """Ask whether all this is to be removed. Ends the command if not."""
    for at, entries in doomed.items():
        everything = "everything on the device, " if at.path == "/" else ""
        screen.complain(f"{at}: {everything}{_amount(entries)}")
    if not screen.confirm("Remove?" if len(doomed) == 1 else "Remove all of these?"):
        screen.complain("nothing was removed")
        raise typer.Exit(REFUSED)


def _amount(entries: Sequence[Entry]) -> str:
    """Format how many files and folders these are, and the size of the files."""
    sizes = [entry.size for entry in entries if entry.kind == "file"]
    folders = len(entries) - len(sizes)
    text = f"{quantity(len(sizes), 'file')}, {screen.size(sum(sizes))}"
    return text if not folders else f"{text}, {quantity(folders, 'folder')}"


@interruptible
@with_device_options
def mkdir(
    paths: Annotated[list[str], typer.Argument(metavar="[DEVICE]:PATH", help="Folders on a device.")],
    parents: Annotated[
        bool, typer.Option("--parents", "-p", help="Also make missing parent folders; no error if it exists.")
    ] = False,
    interrupt: Interrupt = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Make folders on a device."""
    targets = [target(path) for path in paths]
    with server.boards(tables=False) as boards:
        for at in targets:
            with opened(boards, at.device, interrupt=interrupt) as board:
                if parents:
                    for folder in _missing(board, at.path):
                        board.mkdir(folder)
                else:
                    _make(board, at.path)


def _make(board: Board, path: str) -> None:
    try:
        board.mkdir(path)
    except FileMissing as error:
        folder, *inside = _missing(board, path)
        if not inside:
            raise
        where = f"{board.name}:{folder}"
        raise FileMissing("there is no such folder", where=where, hint="Make it first, or use mkdir -p") from error


def _missing(board: Board, path: str) -> list[str]:
    """Return the path and its parents, as far as there are no such folders, the uppermost first."""
    missing: list[str] = []
    path = path.rstrip("/")
    while path:
        try:
            if board.stat(path).kind == "folder":
                break
            raise RequestError("this is a file, not a folder", where=f"{board.name}:{path}")
        except FileMissing:
            missing.insert(0, path)
            path = path.rpartition("/")[0]
    return missing


@interruptible
@with_device_options
def mv(
    path: DevicePath,
    to: Annotated[str, typer.Argument(metavar="PATH", help="The new path on the same device.")],
    interrupt: Interrupt = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Rename a file or folder of a device."""
    with server.boards(changes=True, tables=False) as boards:
        at = target(path).of(boards)
        new = target(to if ":" in to else f"{at.device}:{to}").of(boards)
        if new.device != at.device:
            raise typer.BadParameter("both paths must be on one device; use cp between devices")
        boards.board(at.device, interrupt=interrupt).rename(at.path, new.path)


@interruptible
@with_device_options
def hash(
    paths: DevicePaths, interrupt: Interrupt = False, json: AsJson = False, server: Server = DEFAULT_SERVER
) -> None:
    """Show the digests of files, as their boards compute them: sha256, or crc32 on boards without it."""
    targets = [target(path) for path in paths]
    with server.boards(tables=False) as boards:
        for at in expand(boards, targets, interrupt=interrupt, folders=False):
            with opened(boards, at.device, interrupt=interrupt) as board:
                digest = board.hash(at.path)
            if json:
                screen.as_json({"device": at.device, "path": at.path, **asdict(digest)})
            else:
                screen.line(
                    f"{digest.digest}  {at}" + ("" if digest.algorithm == "sha256" else f"  ({digest.algorithm})")
                )
