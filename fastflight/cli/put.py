"""`fastflight put`: copy or convert local files and folders to a device."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fastflight.cli import screen
from fastflight.cli.arguments import device_first, last_name, refuse, target
from fastflight.cli.copies import Copies, globs_to_ignore, is_copy
from fastflight.cli.copy_progress import copy_progress
from fastflight.cli.exit_codes import usage_errors
from fastflight.cli.interruption import interruptible
from fastflight.cli.options import (
    AsJson,
    Columns,
    Deflate,
    DevicePath,
    Everything,
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
from fastflight.client.options import FileOptions

# The name of standard input, as FILE.
STDIN = "-"


@interruptible
@with_device_options
def put(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A local file, or - for standard input; with -r, a folder.")
    ],
    to: DevicePath,
    recursive: Recursive = False,
    everything: Everything = False,
    skip_unchanged: SkipUnchanged = None,
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
    Links are not copied. Other files there stay. Without --all, these are left out: .git, .venv, node_modules,
    __pycache__, .DS_Store, *.pyc, and what the file .fastflightignore in the folder lists, one glob in each line.
    """
    from_stdin = file == STDIN
    of_rows = columns or record or format not in (None, "raw")
    refuse(
        (recursive and (of_rows or format), "-r copies files as they are: leave --format, --columns and --struct out"),
        (from_stdin and (recursive or of_rows), "standard input is copied as it is: leave -r and options of rows out"),
        (from_stdin and to.endswith((":", "/")), f"name the file on the device: {to}NAME"),
    )
    source = _local(file, folder=recursive) if not from_stdin else Path(file)
    with usage_errors():
        ignore = globs_to_ignore(source) if recursive and not everything else []
    at = target(to, folder=True).under(last_name(file))
    copied = from_stdin or recursive or is_copy(source.name, at.path, format)
    options = FileOptions(transfer=transfer, deflate=deflate, mode=mode, interrupt=interrupt)
    with (
        _stdin_file() if from_stdin else nullcontext(source) as source,
        server.boards(changes=True) as boards,
        device_first(boards, (at := at.of(boards)).device),
    ):
        copies = Copies(boards, options, skip_unchanged, resume, ignore, json)
        if recursive:
            copies.copy_folder(source, at)
        elif copied:
            copies.copy_file(source, at)
        else:
            with copy_progress(str(at), hidden=json) as progress:
                written = boards.tables.write(
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
                screen.as_json({"device": at.device, "path": at.path, **asdict(written)})
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


@contextmanager
def _stdin_file() -> Iterator[Path]:
    """Copy standard input to a temporary file, and delete that after the block.

    So the device is not busy while another program still computes the bytes, and nothing is written if reading fails.
    """
    with tempfile.TemporaryDirectory(prefix="fastflight-") as folder:
        path = Path(folder) / "stdin"
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield path
