"""Commands on files of a device: `ls`, `rm`, `mkdir`, `mv`, `hash`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from fastflight.cli import screen
from fastflight.cli.arguments import Target, device_first, target
from fastflight.cli.exit_codes import REFUSED
from fastflight.cli.globs import expand, is_glob, matches
from fastflight.cli.interruption import interruptible
from fastflight.cli.options import AsJson, DevicePath, DevicePaths, Interrupt
from fastflight.cli.server_options import DEFAULT_SERVER, Server, with_device_options
from fastflight.errors import FileMissing, RequestError

if TYPE_CHECKING:
    from fastflight.client import Entry, FastFlightClient


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
    with server.client() as client:
        at = at.of(client)
        if is_glob(at.path):
            entries = matches(client, at, interrupt=interrupt)
        else:
            entries = client.ls(at.device, at.path, recursive=recursive, interrupt=interrupt)
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
        screen.complain(f"{at} is empty")


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
    with server.client(changes=True) as client:
        found = expand(client, targets, interrupt=interrupt, folders=recursive)
        if not recursive:
            for at in found:
                with device_first(client, at.device):
                    client.remove(at.device, at.path, interrupt=interrupt)
            return
        doomed = {at: _inside(client, at, interrupt) for at in _outermost([at.normal for at in found])}
        if not yes:
            _ask(doomed)
        for at, entries in doomed.items():
            # The longest path first: a folder comes after what it contains.
            for path in sorted((entry.path for entry in entries), key=lambda path: path.count("/"), reverse=True):
                client.remove(at.device, path, interrupt=interrupt)
            screen.line(f"{at}: {_amount(entries)} removed")


def _outermost(targets: Sequence[Target]) -> list[Target]:
    """Return `targets` without paths inside another target: a glob may match both a folder and its content."""
    folders = {(at.device, f"{at.path.rstrip('/')}/") for at in targets}

    def is_inside(at: Target) -> bool:
        return any(at.device == device and at.path != "/" and at.path.startswith(folder) for device, folder in folders)

    return [at for at in targets if not is_inside(at)]


def _inside(client: FastFlightClient, at: Target, interrupt: bool) -> list[Entry]:
    """Return the file or folder itself and everything in it. The top folder is not in its own list: it stays."""
    with device_first(client, at.device):
        entry = client.stat(at.device, at.path, interrupt=interrupt)
        if entry.kind == "file":
            return [entry]
        below = client.ls(at.device, at.path, recursive=True, interrupt=interrupt)
    return below if at.path == "/" else [entry, *below]


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
    files = "1 file" if len(sizes) == 1 else f"{len(sizes):,} files"
    text = f"{files}, {screen.size(sum(sizes))}"
    return text if not folders else f"{text}, {folders:,} folder{'s' * (folders > 1)}"


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
    with server.client() as client:
        for at in (each.of(client) for each in targets):
            with device_first(client, at.device):
                if parents:
                    for folder in _missing(client, at, interrupt):
                        client.mkdir(at.device, folder, interrupt=interrupt)
                else:
                    _make(client, at, interrupt)


def _make(client: FastFlightClient, at: Target, interrupt: bool) -> None:
    try:
        client.mkdir(at.device, at.path, interrupt=interrupt)
    except FileMissing as error:
        folder, *inside = _missing(client, at, interrupt)
        if not inside:
            raise
        where = str(Target(at.device, folder))
        raise FileMissing("there is no such folder", where=where, hint="Make it first, or use mkdir -p") from error


def _missing(client: FastFlightClient, at: Target, interrupt: bool) -> list[str]:
    """Return the path and its parents, as far as there are no such folders, the uppermost first."""
    missing: list[str] = []
    path = at.path.rstrip("/")
    while path:
        try:
            if client.stat(at.device, path, interrupt=interrupt).kind == "folder":
                break
            raise RequestError("this is a file, not a folder", where=str(Target(at.device, path)))
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
    with server.client(changes=True) as client:
        at = target(path).of(client)
        new = target(to if ":" in to else f"{at.device}:{to}").of(client)
        if new.device != at.device:
            raise typer.BadParameter("both paths must be on one device; use cp between devices")
        client.rename(at.device, at.path, new.path, interrupt=interrupt)


@interruptible
@with_device_options
def hash(
    paths: DevicePaths, interrupt: Interrupt = False, json: AsJson = False, server: Server = DEFAULT_SERVER
) -> None:
    """Show the digests of files, as their boards compute them: sha256, or crc32 on boards without it."""
    targets = [target(path) for path in paths]
    with server.client() as client:
        for at in expand(client, targets, interrupt=interrupt, folders=False):
            with device_first(client, at.device):
                digest = client.hash(at.device, at.path, interrupt=interrupt)
            if json:
                screen.as_json({"device": at.device, "path": at.path, **asdict(digest)})
            else:
                screen.line(
                    f"{digest.digest}  {at}" + ("" if digest.algorithm == "sha256" else f"  ({digest.algorithm})")
                )
