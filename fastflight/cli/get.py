"""`fastflight get`: copy, convert or show files and folders of a device."""

from __future__ import annotations

import os
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from fastflight.cli import screen
from fastflight.cli.arguments import Target, device_first, schema_of, target
from fastflight.cli.copy_progress import copy_progress, print_file_result, print_tree_result
from fastflight.cli.exit_codes import REFUSED
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
from fastflight.cli.preview import Preview
from fastflight.cli.server_options import DEFAULT_SERVER, Server, with_device_options
from fastflight.client import FastFlightClient, RowStream
from fastflight.client.local import copied_as_is
from fastflight.client.meaning import understood, whole
from fastflight.client.options import FileOptions
from fastflight.client.saving import SavedFile
from fastflight.client.stream import BESIDE, Summary
from fastflight.errors import RequestError
from fastflight.service.choices import OnError
from fastflight.tables import format_of

# Characters that make a device name a glob.
GLOB = set("*?[")


@interruptible
@with_device_options
def get(
    file: DevicePath,
    to: Annotated[str | None, typer.Argument(metavar="[FILE]", help="The same as -o; with -r, a folder.")] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Local file to write. Left out: print a table."),
    ] = None,
    recursive: Recursive = False,
    skip_unchanged: SkipUnchanged = False,
    resume: Resume = True,
    format: FormatOption = None,
    schema: Annotated[
        str | None,
        typer.Option("--schema", metavar="NAME=TYPE,...", help="Names of the columns and their Arrow types."),
    ] = None,
    columns: Columns = None,
    record: Record = None,
    on_error: Annotated[
        OnError, typer.Option("--on-error", help="What to do with rows that do not fit the columns.")
    ] = "skip",
    ordered: Annotated[
        bool, typer.Option("--ordered", help="With a glob: the rows of one device after another.")
    ] = False,
    transfer: TransferOption = "auto",
    deflate: Deflate = None,
    mode: ModeOption = "async",
    interrupt: Interrupt = False,
    json: AsJson = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Read a file of a device: copy it, convert it, or show it as a table.

    If FILE has the same ending as the device's file, its bytes are copied.
    Another ending (.csv, .jsonl, .arrow, .parquet) converts the rows.
    An interrupted copy leaves FILE.part, and the same command continues it.

    With -r, the files of a folder and its subfolders are copied to the folder FILE.
    If FILE ends in /, they are copied to a subfolder of FILE with the name of the device's folder.
    Without FILE, that subfolder is made in the current folder. Other files there stay.

    With a glob as DEVICE, as in 'lab-*:/t.csv', the rows of all these devices form one table.
    """
    at = target(file, folder=recursive)
    fleet = bool(GLOB & set(at.device))
    if to is not None and output is not None:
        raise typer.BadParameter("the output is given twice: leave -o out")
    if recursive and (format or schema or columns or record):
        raise typer.BadParameter("-r copies files as they are: leave --format, --schema, --columns and --record out")
    if fleet and (recursive or skip_unchanged):
        raise typer.BadParameter("-r and --skip-unchanged are for one device: name it")
    place = output if to is None else to
    options = FileOptions(transfer=transfer, deflate=deflate, mode=mode, interrupt=interrupt)
    with server.client() as client, nullcontext() if fleet else device_first(client, (at := at.of(client)).device):
        if recursive:
            folder = _under(place or "./", at.name)
            if folder.exists() and not folder.is_dir():
                raise typer.BadParameter(f"{str(folder)!r} is not a folder: choose another place")
            _folder(client, at, folder, skip_unchanged, options, json)
            return
        path = None if place is None else _file(place, at.name)
        as_is = format == "raw" or (path is not None and format is None and copied_as_is(path.name, at.path))
        if path is not None and as_is and not fleet:
            if schema or columns:
                raise typer.BadParameter("a copy of the bytes has no columns: leave --schema and --columns out")
            _bytes(client, at, path, resume, skip_unchanged, options, json)
            return
        if path is not None and format is None and format_of(at.path) == "raw":
            raise RequestError(
                "the file's ending does not name a table format",
                where=str(at),
                hint=f"Give --format (packed needs --record and --columns), or an output that is not {path.suffix}",
            )
        with copy_progress(str(at), hidden=json) as progress:
            read = partial(client.read_fleet, ordered=ordered) if fleet else client.read
            stream = read(
                at.device,
                at.path,
                format=format,
                schema=schema_of(schema),
                columns=columns.split(",") if columns else None,
                record=record,
                on_error=on_error,
                progress=progress.report,
                **options,
            )
            with stream:
                result = _preview(stream) if path is None else _save(stream, path)
    if json:
        types = {field.name: str(field.type) for field in stream.schema}
        screen.as_json({**_paths(at, path), "columns": types, **stream.summary})
    else:
        screen.show(result)
        _report_rejected(stream.summary)
    _report_failed(stream.summary)


def _folder(
    client: FastFlightClient, at: Target, folder: Path, skip_unchanged: bool, options: FileOptions, json: bool
) -> None:
    """Copy a folder."""

    def describe_rest(_: str) -> str:
        return f"the complete files are in {folder}; with --skip-unchanged the same command copies the others"

    with copy_progress(str(at), hidden=json, describe_rest=describe_rest) as progress:
        tree = client.get_tree(
            at.device, at.path, folder, skip_unchanged=skip_unchanged, progress=progress.file, **options
        )
    print_tree_result(tree, str(folder), "read", _paths(at, folder), json=json)


def _bytes(
    client: FastFlightClient,
    at: Target,
    path: Path,
    resume: bool,
    skip_unchanged: bool,
    options: FileOptions,
    json: bool,
) -> None:
    """Copy the bytes of a file."""

    def describe_rest(amount: str) -> str:
        return f"{amount} are kept in {path}.part; run the same command again to continue"

    with copy_progress(str(at), hidden=json, describe_rest=describe_rest if resume else None) as progress:
        copied = client.get_file(
            at.device,
            at.path,
            path,
            resume=resume,
            skip_unchanged=skip_unchanged,
            progress=progress.report,
            resuming=progress.resuming,
            **options,
        )
    print_file_result(copied, str(path), "", _paths(at, path), json=json)


def _file(place: str, name: str) -> Path:
    """Return the local path of the output file: `place`, or `name` in it if it is an existing folder."""
    path = Path(place)
    if path.is_dir():
        return path / name
    if place.endswith(("/", os.sep)):
        raise typer.BadParameter(f"{place!r} is not a folder: make it first")
    if not path.parent.is_dir():
        raise typer.BadParameter(f"{str(path.parent)!r} is not a folder: make it first")
    return path


def _under(place: str, name: str) -> Path:
    """Return the local path of the output folder: `place`, or `name` in it if it ends in a slash."""
    return Path(place) / name if place.endswith(("/", os.sep)) else Path(place)


def _paths(at: Target, output: Path | None) -> dict[str, Any]:
    return {"device": at.device, "path": at.path, "output": None if output is None else str(output)}


def _preview(stream: RowStream) -> Any:
    preview = Preview(stream.schema)
    for batch in stream:
        preview.add(batch)
    return preview.table()


def _save(stream: RowStream, path: Path) -> str:
    with SavedFile(path, stream.schema) as file:
        for batch in stream:
            file.write(batch)
    return f"{path}: {screen.size(file.bytes)}, {stream.summary.get('rows', 0):,} rows"


def _report_failed(summary: Summary) -> None:
    """Name the devices that could not be read, and end with exit code 1 if there are any."""
    with understood(BESIDE):
        failed = summary.get("failed", ())
        for failure in failed:
            where = failure.get("where") or failure["device"]
            screen.complain(f"error: {where}: {failure['what']}. {failure.get('hint', '')}".rstrip(". "))
    if failed:
        raise typer.Exit(REFUSED)


def _report_rejected(summary: Summary) -> None:
    if count := summary.get("rejected", 0):
        with understood(BESIDE):
            first = next(iter(summary.get("rejected_rows", ())), None)
            place = f"byte {first['offset']}" + (f" on {first['device']}" if "device" in first else "") if first else ""
            example = f", the first at {place}: {first['reason']}" if first else ""
            rows = "1 row did not fit and was" if count == 1 else f"{whole(count):,} rows did not fit and were"
        screen.complain(f"{rows} set aside{example}")
