"""Commands on files of a device: `ls`, `rm`, `mkdir`, `mv`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from fastflight.cli import screen
from fastflight.cli.arguments import target
from fastflight.cli.interruption import interruptible
from fastflight.cli.options import AsJson, DevicePath, Interrupt
from fastflight.cli.server_options import DEFAULT_SERVER, Server, with_device_options


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
    """List a folder on a device."""
    with server.client() as client:
        at = target(folder, folder=True).of(client)
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
    path: DevicePath,
    interrupt: Interrupt = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Remove a file or an empty folder of a device."""
    with server.client() as client:
        at = target(path).of(client)
        client.remove(at.device, at.path, interrupt=interrupt)


@interruptible
@with_device_options
def mkdir(path: DevicePath, interrupt: Interrupt = False, server: Server = DEFAULT_SERVER) -> None:
    """Make a folder on a device."""
    with server.client() as client:
        at = target(path).of(client)
        client.mkdir(at.device, at.path, interrupt=interrupt)


@interruptible
@with_device_options
def mv(
    path: DevicePath,
    to: Annotated[str, typer.Argument(metavar="PATH", help="The new path on the same device.")],
    interrupt: Interrupt = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Rename a file or folder of a device."""
    with server.client() as client:
        at = target(path).of(client)
        new = target(to if ":" in to else f"{at.device}:{to}").of(client)
        if new.device != at.device:
            raise typer.BadParameter("both paths must be on one device; use get and put between devices")
        client.rename(at.device, at.path, new.path, interrupt=interrupt)
