"""`fastflight put`: copy or convert local files and folders to a device."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fastflight.cli import screen
from fastflight.cli.arguments import device_first, last_name, target
from fastflight.cli.copy_progress import copy_progress, print_file_result, print_tree_result
from fastflight.cli.interruption import interruptible
from fastflight.cli.options import (
    AsJson,
    Columns,
    Deflate,
    DevicePath,
    FormatOption,
    Interrupt,
    ModeOption,
    Record,
    Recursive,
    Resume,
    SkipUnchanged,
    TransferOption,
)
from fastflight.cli.server_options import DEFAULT_SERVER, Server, with_device_options
from fastflight.client.local import copied_as_is
from fastflight.client.options import FileOptions


@interruptible
@with_device_options
def put(
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
    server: Server = DEFAULT_SERVER,
) -> None:
    """Write a local file to a device. It is converted if the endings name different table formats, else copied.

    The old file on the device stays until the new one is complete and verified.
    An interrupted copy leaves what it has stored, and the same command continues it.

    With -r, the files of a folder and its subfolders are copied to the folder DEVICE:PATH.
    If PATH ends in /, they are copied to a subfolder of it with the name of the local folder.
    Links are not copied. Other files there stay.
    """
    if recursive and (format or columns or record):
        raise typer.BadParameter("-r copies files as they are: leave --format, --columns and --record out")
    source = _local(file, folder=recursive)
    at = target(to, folder=True).under(last_name(file))
    options = FileOptions(transfer=transfer, deflate=deflate, mode=mode, interrupt=interrupt)
    with server.client() as client, device_first(client, (at := at.of(client)).device):
        paths = {"device": at.device, "path": at.path}
        if recursive:
            with copy_progress(str(at), hidden=json) as progress:
                tree = client.put_tree(
                    at.device, at.path, source, skip_unchanged=skip_unchanged, progress=progress.file, **options
                )
            print_tree_result(tree, str(at), "written", paths, json=json)
        elif format == "raw" or (format is None and copied_as_is(source.name, at.path)):
            with copy_progress(str(at), hidden=json, describe_rest=_describe_rest if resume else None) as progress:
                copied = client.put_file(
                    at.device,
                    at.path,
                    source,
                    resume=resume,
                    skip_unchanged=skip_unchanged,
                    progress=progress.report,
                    resuming=progress.resuming,
                    **options,
                )
            print_file_result(copied, str(at), " written", paths, json=json)
        else:
            with copy_progress(str(at), hidden=json) as progress:
                written = client.write(
                    at.device,
                    at.path,
                    source,
                    format=format,
                    columns=columns.split(",") if columns else None,
                    record=record,
                    progress=progress.report,
                    **options,
                )
            if json:
                screen.as_json({**paths, **asdict(written)})
            else:
                screen.line(f"{at}: {screen.size(written.bytes)} written")


def _local(name: str, *, folder: bool) -> Path:
    """Return the path of an existing local file, or of a folder with `folder`."""
    path = Path(name)
    if not name or not path.exists():
        raise typer.BadParameter(f"{name!r} does not exist")
    if path.is_dir() != folder:
        raise typer.BadParameter(f"{name!r} is not a folder" if folder else f"{name!r} is a folder: use -r")
    return path


def _describe_rest(amount: str) -> str:
    return f"{amount} are kept on the board; run the same command again to continue"
