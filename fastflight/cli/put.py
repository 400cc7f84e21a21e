"""`put`: local files and folders onto a device."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fastflight.cli import screen
from fastflight.cli.asking import HERE, Server, asking
from fastflight.cli.copy_progress import copy_progress, tell_file, tell_tree
from fastflight.cli.exits import asynchronous
from fastflight.cli.options import (
    Columns,
    Deflate,
    DevicePath,
    FormatOption,
    How,
    ModeOption,
    Record,
    Recursive,
    Resume,
    SkipUnchanged,
    TransferOption,
)
from fastflight.cli.target import AsJson, Interrupt, device_first, last_name, target
from fastflight.client.local import copied_as_is


@asynchronous
@asking
async def put(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A local file; with -r, a folder.")],
    to: DevicePath,
    recursive: Recursive = False,
    skip_unchanged: SkipUnchanged = False,
    resume: Resume = True,
    format: FormatOption = None,
    columns: Columns = None,
    record: Record = None,
    transfer: TransferOption = "auto",
    deflate: Deflate = None,
    mode: ModeOption = "async",
    interrupt: Interrupt = False,
    json: AsJson = False,
    server: Server = HERE,
) -> None:
    """Write a local file to a device: as it is where the endings agree, converted where they do not.

    The old file on the device stays until the new one is there and verified.
    A copy that breaks off leaves what it has stored: the same command goes on from there.

    With -r the files in a folder, and in those below it, get the same paths below DEVICE:PATH.
    Where that ends in /, they land in a folder of the same name in there.
    Links are left out. What else is there stays.
    """
    if recursive and (format or columns or record):
        raise typer.BadParameter("-r copies files as they are: leave --format, --columns and --record out")
    source = _local(file, folder=recursive)
    at = target(to, folder=True).under(last_name(file))
    how = How(transfer=transfer, deflate=deflate, mode=mode, interrupt=interrupt)
    told = {"device": at.device, "path": at.path}
    async with server.client() as client, device_first(client, at.device):
        if recursive:
            with copy_progress(str(at), hidden=json) as followed:
                tree = await client.put_tree(
                    at.device, at.path, source, skip_unchanged=skip_unchanged, progress=followed.file, **how
                )
            tell_tree(tree, str(at), "written", told, json=json)
        elif format == "raw" or (format is None and copied_as_is(source.name, at.path)):
            with copy_progress(str(at), hidden=json, kept=_kept if resume else None) as followed:
                copied = await client.put_file(
                    at.device,
                    at.path,
                    source,
                    resume=resume,
                    skip_unchanged=skip_unchanged,
                    progress=followed.report,
                    resuming=followed.resuming,
                    **how,
                )
            tell_file(copied, str(at), " written", told, json=json)
        else:
            with copy_progress(str(at), hidden=json) as followed:
                written = await client.write(
                    at.device,
                    at.path,
                    source,
                    format=format,
                    columns=columns.split(",") if columns else None,
                    record=record,
                    progress=followed.report,
                    **how,
                )
            if json:
                screen.as_json({**told, **asdict(written)})
            else:
                screen.line(f"{at}: {screen.size(written.bytes)} written")


def _local(name: str, *, folder: bool) -> Path:
    """A local file or folder that is there."""
    path = Path(name)
    if not name or not path.exists():
        raise typer.BadParameter(f"{name!r} does not exist")
    if path.is_dir() != folder:
        raise typer.BadParameter(f"{name!r} is not a folder" if folder else f"{name!r} is a folder: use -r")
    return path


def _kept(amount: str) -> str:
    return f"{amount} are kept on the board; the same command goes on from there"
