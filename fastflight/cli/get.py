"""`fastflight get`: copy, convert or show files and folders of a device."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from fastflight.cli import screen
from fastflight.cli.arguments import Target, device_first, refuse, schema_of, target
from fastflight.cli.cat import print_bytes
from fastflight.cli.copies import Copies, check_distinct, is_copy
from fastflight.cli.globs import expand, is_glob
from fastflight.cli.interruption import interruptible
from fastflight.cli.options import (
    AsJson,
    Columns,
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
from fastflight.cli.text_options import NO_TEXT_OPTIONS, with_text_options
from fastflight.client.local_names import local_path
from fastflight.client.options import FileOptions, TextOptions
from fastflight.errors import RequestError
from fastflight.service.choices import OnError
from fastflight.tables import format_of

# More rows than the largest sample has.
MAX_SAMPLE_ROWS = 64 * 1024
# The name of standard output, as FILE.
STDOUT = "-"
# Formats in which rows can be printed.
TextFormat = Literal["csv", "jsonl", "arrow"]


@interruptible
@with_device_options
@with_text_options
def get(
    file: DevicePath,
    to: Annotated[str | None, typer.Argument(metavar="[FILE]", help="The same as -o; with -r, a folder.")] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Local file to write; - is standard output. Left out: show a table, or in a pipe the file's bytes.",
        ),
    ] = None,
    head: Annotated[
        int | None, typer.Option("--head", metavar="N", min=1, help="Only the first N rows; the device sends no more.")
    ] = None,
    printed: Annotated[
        TextFormat | None, typer.Option("--as", help="Print the rows on standard output in this format.")
    ] = None,
    recursive: Recursive = False,
    skip_unchanged: SkipUnchanged = None,
    resume: Resume = True,
    format: FormatOption = None,
    schema: Annotated[
        str | None,
        typer.Option("--schema", metavar="NAME=TYPE,...", help="Names of the columns and their Arrow types."),
    ] = None,
    columns: Columns = None,
    record: Record = None,
    on_error: Annotated[
        OnError, typer.Option("--on-error", help="Count what does not fit the columns (skip), or end there (fail).")
    ] = "skip",
    ordered: Annotated[
        bool, typer.Option("--ordered", help="With a glob: the rows of one device after another.")
    ] = False,
    transfer: TransferOption = "auto",
    mode: ModeOption = "async",
    interrupt: Interrupt = False,
    json: AsJson = False,
    text: TextOptions = NO_TEXT_OPTIONS,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Read a file of a device: copy it, convert it, or show it as a table.

    If FILE has the same ending as the device's file, or one that names no table format, its bytes are copied.
    Another ending (.csv, .jsonl, .arrow, .parquet, .mcap) converts the rows.
    An interrupted copy leaves FILE.part, and the same command continues it.

    Without FILE, a terminal shows a table; a pipe or a file gets the bytes: get demo:/a.csv > a.csv.
    Rows that are chosen or described by options are printed as CSV, or in the format of --as.

    With -r, the files of a folder and its subfolders are copied to the folder FILE.
    If FILE ends in /, they are copied to a subfolder of FILE with the name of the device's folder.
    Without FILE, that subfolder is made in the current folder. Other files there stay.

    With a glob as PATH, as in 'demo:/log-*.csv', the files are copied to the folder FILE.
    With a glob as DEVICE, as in 'lab-*:/t.csv', the rows of all these devices form one table.
    """
    at = target(file, folder=recursive)
    place = output if to is None else to
    fleet, several = is_glob(at.device), is_glob(at.path)
    of_rows = bool(schema or columns or record or text)
    refuse(
        (to is not None and output is not None, "the output is given twice: leave -o out"),
        (
            recursive and (format or of_rows or head or printed),
            "-r copies files as they are: leave options of rows out",
        ),
        (fleet and (recursive or skip_unchanged or several), "-r, --skip-unchanged and a glob as PATH need one device"),
        (recursive and several, "-r copies one folder: name it, or use `fastflight cp -r`"),
        (place == STDOUT and (recursive or json), "-o - prints one file: leave -r and --json out"),
        (printed and (json or place not in (None, STDOUT)), "--as is for standard output: the ending of FILE says it"),
    )
    is_piped = place is None and head is None and not json and not sys.stdout.isatty()
    printing = place == STDOUT or printed is not None or is_piped
    options = FileOptions(transfer=transfer, mode=mode, interrupt=interrupt)
    with server.boards() as boards, nullcontext() if fleet else device_first(boards, (at := at.of(boards)).device):
        copies = Copies(boards, options, skip_unchanged, resume, json=json)
        if recursive:
            copies.copy_folder(at, _folder(place or "./", at.name))
            return
        if several:
            found = expand(boards, [at], interrupt=interrupt, folders=False)
            if len(found) > 1:
                _copy_all(copies, found, None if format or of_rows or head else place)
                return
            (at,) = found
        own = format_of(at.path)
        if printing and not (fleet or of_rows or head or printed) and format in (None, "raw"):
            print_bytes(boards.board(at.device, **options), at.path, screen.bytes_writer())
            return
        path = None if place is None or printing else _file(place, at.name)
        if path is not None and not fleet and not head and is_copy(at.path, path.name, format):
            refuse((schema or columns, "a copy of the bytes has no columns: leave --schema and --columns out"))
            copies.copy_file(at, path)
            return
        refuse(
            (
                printing and not printed and own != "raw" and format not in (None, "raw", own),
                f"--format is the format of the device's file, and its ending says {own}: convert with --as {format}",
            )
        )
        if (path is not None or printing) and format is None and own == "raw":
            if not fleet:
                boards.board(at.device, interrupt=interrupt).stat(at.path)  # a typo in the path comes first
            other = f"an output that is not {path.suffix}" if path else "leave the options of rows out"
            raise RequestError(
                "the file's ending does not name a table format",
                where=str(at),
                hint=f"Give --format (packed needs --struct and --columns), or {other}",
            )
        from fastflight.cli.get_rows import read_rows, text_format

        client = boards.tables
        read = partial(
            partial(client.read_fleet, ordered=ordered) if fleet else client.read,
            at.device,
            at.path,
            format=format,
            schema=schema_of(schema),
            columns=columns.split(",") if columns else None,
            record=record,
            on_error=on_error,
            # The first rows are to come at once.
            infer="file" if head is None else "sample",
            sample_rows=None if head is None else min(head, MAX_SAMPLE_ROWS),
            **text,
            **options,
        )
        printed_as = (printed or text_format(format or own)) if printing else None
        read_rows(read, at, head=head, path=path, printed=printed_as, json=json)


def _copy_all(copies: Copies, files: Sequence[Target], place: str | None) -> None:
    """Copy several files of a device to the folder `place`. All names are checked before the first is copied."""
    if place is None or not Path(place).is_dir():
        raise typer.BadParameter(
            f"{len(files)} files match: name a folder to copy them to, and leave options of rows out"
        )
    check_distinct(each.name for each in files)
    local = [local_path(Path(place), each.name) for each in files]
    for each, path in zip(files, local, strict=True):
        copies.copy_file(each, path)


def _file(place: str, name: str) -> Path:
    """Return the local path of the output file: `place`, or `name` in it if it is an existing folder."""
    path = Path(place)
    if path.is_dir():
        return local_path(path, name) if name else path
    if place.endswith(("/", os.sep)):
        raise typer.BadParameter(f"{place!r} is not a folder: make it first")
    if not path.parent.is_dir():
        raise typer.BadParameter(f"{str(path.parent)!r} is not a folder: make it first")
    return path


def _folder(place: str, name: str) -> Path:
    """Return the local path of the output folder: `place`, or `name` in it if it ends in a slash."""
    folder = local_path(Path(place), name) if name and place.endswith(("/", os.sep)) else Path(place)
    if folder.exists() and not folder.is_dir():
        raise typer.BadParameter(f"{str(folder)!r} is not a folder: choose another place")
    return folder
