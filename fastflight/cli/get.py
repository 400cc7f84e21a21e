"""`get`: files and folders of a device, copied, converted or onto the screen."""

from __future__ import annotations

import os
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from fastflight.cli import screen
from fastflight.cli.asking import HERE, Server, asking
from fastflight.cli.copy_progress import copy_progress, tell_file, tell_tree
from fastflight.cli.exits import REFUSED, asynchronous
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
from fastflight.cli.preview import Preview
from fastflight.cli.target import AsJson, Interrupt, Target, device_first, schema_of, target
from fastflight.client import AsyncFastFlightClient, AsyncRowStream
from fastflight.client.local import copied_as_is
from fastflight.client.meaning import understood, whole
from fastflight.client.saving import SavedFile
from fastflight.client.stream import BESIDE, Summary
from fastflight.errors import RequestError
from fastflight.service.requests import OnError
from fastflight.tables import format_of

# What makes a name a glob over devices.
GLOB = set("*?[")


@asynchronous
@asking
async def get(
    file: DevicePath,
    to: Annotated[str | None, typer.Argument(metavar="[FILE]", help="The same as -o; with -r, a folder.")] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to put it. Left out: a table on the screen."),
    ] = None,
    recursive: Recursive = False,
    skip_unchanged: SkipUnchanged = False,
    resume: Resume = True,
    format: FormatOption = None,
    schema: Annotated[
        str | None, typer.Option("--schema", metavar="NAME=TYPE,...", help="Column types, by Arrow's names.")
    ] = None,
    columns: Columns = None,
    record: Record = None,
    on_error: Annotated[OnError, typer.Option("--on-error", help="What to do with rows that do not fit.")] = "skip",
    ordered: Annotated[bool, typer.Option("--ordered", help="Of several devices: one after another.")] = False,
    transfer: TransferOption = "auto",
    deflate: Deflate = None,
    mode: ModeOption = "async",
    interrupt: Interrupt = False,
    json: AsJson = False,
    server: Server = HERE,
) -> None:
    """Read a file of a device: as it is, converted, or onto the screen.

    With `-o` and the same ending the bytes are copied; another (.csv, .jsonl, .arrow, .parquet) converts.
    A copy that breaks off leaves FILE.part: the same command goes on from there.

    With -r the files in a folder, and in those below it, get the same paths below FILE.
    Where that ends in /, or is left out, they land in a folder of the same name in there.
    What else is there stays.

    With a glob for DEVICE, as in 'lab-*:/t.csv', the rows of all these devices make one table.
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
    how = How(transfer=transfer, deflate=deflate, mode=mode, interrupt=interrupt)
    async with server.client() as client, nullcontext() if fleet else device_first(client, at.device):
        if recursive:
            folder = _under(place or "./", at.name)
            if folder.exists() and not folder.is_dir():
                raise typer.BadParameter(f"{str(folder)!r} is not a folder: choose another place")
            await _folder(client, at, folder, skip_unchanged, how, json)
            return
        path = None if place is None else _file(place, at.name)
        as_is = format == "raw" or (path is not None and format is None and copied_as_is(path.name, at.path))
        if path is not None and as_is and not fleet:
            if schema or columns:
                raise typer.BadParameter("a copy of the bytes has no columns: leave --schema and --columns out")
            await _bytes(client, at, path, resume, skip_unchanged, how, json)
            return
        if path is not None and format is None and format_of(at.path) == "raw":
            raise RequestError(
                "its ending does not say what table it holds",
                where=str(at),
                hint=f"Give --format (packed needs --record and --columns), or an output that is not {path.suffix}",
            )
        with copy_progress(str(at), hidden=json) as followed:
            read = partial(client.read_fleet, ordered=ordered) if fleet else client.read
            stream = await read(
                at.device,
                at.path,
                format=format,
                schema=schema_of(schema),
                columns=columns.split(",") if columns else None,
                record=record,
                on_error=on_error,
                progress=followed.report,
                **how,
            )
            async with stream:
                shown = await (_screened(stream) if path is None else _saved(stream, path))
    if json:
        types = {field.name: str(field.type) for field in stream.schema}
        screen.as_json({**_told(at, path), "columns": types, **stream.summary})
    else:
        screen.show(shown)
        _tell_rejected(stream.summary)
    _refuse_failed(stream.summary)


async def _folder(
    client: AsyncFastFlightClient, at: Target, folder: Path, skip_unchanged: bool, how: How, json: bool
) -> None:
    """Copy a folder."""

    def kept(_: str) -> str:
        return f"the files that are whole are in {folder}; with --skip-unchanged the same command reads the others"

    with copy_progress(str(at), hidden=json, kept=kept) as followed:
        tree = await client.get_tree(
            at.device, at.path, folder, skip_unchanged=skip_unchanged, progress=followed.file, **how
        )
    tell_tree(tree, str(folder), "read", _told(at, folder), json=json)


async def _bytes(
    client: AsyncFastFlightClient, at: Target, path: Path, resume: bool, skip_unchanged: bool, how: How, json: bool
) -> None:
    """Copy a file as it is."""

    def kept(amount: str) -> str:
        return f"{amount} are kept in {path}.part; the same command goes on from there"

    with copy_progress(str(at), hidden=json, kept=kept if resume else None) as followed:
        copied = await client.get_file(
            at.device,
            at.path,
            path,
            resume=resume,
            skip_unchanged=skip_unchanged,
            progress=followed.report,
            resuming=followed.resuming,
            **how,
        )
    tell_file(copied, str(path), "", _told(at, path), json=json)


def _file(place: str, name: str) -> Path:
    """A local path, or what is called `name` in it where that is a folder."""
    path = Path(place)
    if path.is_dir():
        return path / name
    if place.endswith(("/", os.sep)):
        raise typer.BadParameter(f"{place!r} is not a folder: make it first")
    if not path.parent.is_dir():
        raise typer.BadParameter(f"{str(path.parent)!r} is not a folder: make it first")
    return path


def _under(place: str, name: str) -> Path:
    """A local path, or what is called `name` in it where it was written as a folder."""
    return Path(place) / name if place.endswith(("/", os.sep)) else Path(place)


def _told(at: Target, output: Path | None) -> dict[str, Any]:
    return {"device": at.device, "path": at.path, "output": None if output is None else str(output)}


async def _screened(stream: AsyncRowStream) -> Any:
    preview = Preview(stream.schema)
    async for batch in stream:
        preview.add(batch)
    return preview.table()


async def _saved(stream: AsyncRowStream, path: Path) -> str:
    with SavedFile(path, stream.schema) as file:
        async for batch in stream:
            file.write(batch)
    return f"{path}: {screen.size(file.bytes)}, {stream.summary.get('rows', 0):,} rows"


def _refuse_failed(summary: Summary) -> None:
    """Name the devices that could not be read; the rows of the others are there."""
    with understood(BESIDE):
        failed = summary.get("failed", ())
        for told in failed:
            where = told.get("where") or told["device"]
            screen.complain(f"error: {where}: {told['what']}. {told.get('hint', '')}".rstrip(". "))
    if failed:
        raise typer.Exit(REFUSED)


def _tell_rejected(summary: Summary) -> None:
    if count := summary.get("rejected", 0):
        with understood(BESIDE):
            first = next(iter(summary.get("rejected_rows", ())), None)
            place = f"byte {first['offset']}" + (f" on {first['device']}" if "device" in first else "") if first else ""
            example = f", the first at {place}: {first['reason']}" if first else ""
            rows = "1 row did not fit and was" if count == 1 else f"{whole(count):,} rows did not fit and were"
        screen.complain(f"{rows} set aside{example}")
