"""Files of devices: `ls`, `get`, `put`, `rm`, `mkdir`, `mv`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from fastflight.cli import screen
from fastflight.cli.exits import asynchronous
from fastflight.cli.preview import Preview
from fastflight.cli.target import DEFAULT_LOCATION, AsJson, Interrupt, Server, schema_of, target
from fastflight.client import AsyncFastFlightClient, AsyncRowStream
from fastflight.client.local import copied_as_is
from fastflight.client.saving import LocalFile
from fastflight.client.stream import Summary
from fastflight.errors import RequestError
from fastflight.service.requests import Format, Mode, OnError
from fastflight.tables import format_of

DevicePath = Annotated[str, typer.Argument(metavar="DEVICE:PATH", help="A path on a device.")]
FormatOption = Annotated[
    Format | None, typer.Option("--format", help="The file's format on the device; by its ending if left out.")
]
Record = Annotated[
    str | None, typer.Option("--record", metavar="STRUCT", help="One record of a packed file, as for struct: '<IfH'.")
]
Columns = Annotated[
    str | None,
    typer.Option("--columns", metavar="A,B,...", help="The columns to keep; for packed, the names of the fields."),
]
ModeOption = Annotated[Mode, typer.Option("--mode", help="How the server does it.")]


@asynchronous
async def ls(
    folder: Annotated[str, typer.Argument(metavar="DEVICE[:PATH]", help="A device, and a folder on it.")],
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Folders in folders too.")] = False,
    interrupt: Interrupt = False,
    json: AsJson = False,
    server: Server = DEFAULT_LOCATION,
) -> None:
    """List a folder on a device."""
    at = target(folder, folder=True)
    async with AsyncFastFlightClient(server) as client:
        entries = await client.ls(at.device, at.path, recursive=recursive, interrupt=interrupt)
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


@asynchronous
async def get(
    file: DevicePath,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to put it. Left out: a table on the screen."),
    ] = None,
    format: FormatOption = None,
    schema: Annotated[
        str | None, typer.Option("--schema", metavar="NAME=TYPE,...", help="Column types, by Arrow's names.")
    ] = None,
    columns: Columns = None,
    record: Record = None,
    on_error: Annotated[OnError, typer.Option("--on-error", help="What to do with rows that do not fit.")] = "skip",
    mode: ModeOption = "async",
    interrupt: Interrupt = False,
    json: AsJson = False,
    server: Server = DEFAULT_LOCATION,
) -> None:
    """Read a file of a device: as it is, converted, or onto the screen.

    With `-o` and the same ending the bytes are copied. Another ending (.csv, .jsonl, .arrow, .parquet) converts.
    """
    at = target(file)
    if output is not None and output.is_dir():
        output = output / at.path.rpartition("/")[2]
    if output is not None and format is None and copied_as_is(output.name, at.path):
        format = "raw"
    if output is not None and format is None and format_of(at.path) == "raw":
        raise RequestError(
            "its ending does not say what table it holds",
            where=str(at),
            hint=f"Give --format (packed needs --record and --columns), or an output that is not {output.suffix}",
        )
    async with AsyncFastFlightClient(server) as client:
        with screen.progress(str(at), hidden=json) as report:
            total = (await client.stat(at.device, at.path, interrupt=interrupt)).size if format == "raw" else None
            stream = await client.read(
                at.device,
                at.path,
                format=format,
                schema=schema_of(schema),
                columns=columns.split(",") if columns else None,
                record=record,
                on_error=on_error,
                mode=mode,
                interrupt=interrupt,
                progress=None if report is None else lambda rows, done, _: report(rows, done, total),
            )
            async with stream:
                shown = await (_screened(stream) if output is None else _saved(stream, output, raw=format == "raw"))
    summary = {"device": at.device, "path": at.path, "output": None if output is None else str(output)}
    if json:
        types = {field.name: str(field.type) for field in stream.schema}
        screen.as_json({**summary, "columns": types, **stream.summary})
    else:
        screen.show(shown)
        _tell_rejected(stream.summary)


@asynchronous
async def put(
    file: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="A local file.")],
    to: DevicePath,
    format: FormatOption = None,
    columns: Columns = None,
    record: Record = None,
    mode: ModeOption = "async",
    interrupt: Interrupt = False,
    json: AsJson = False,
    server: Server = DEFAULT_LOCATION,
) -> None:
    """Write a local file to a device: as it is where the endings agree, converted where they do not.

    The old file on the device stays until the new one is there and verified.
    """
    at = target(to, folder=True).under(file.name)
    async with AsyncFastFlightClient(server) as client:
        with screen.progress(str(at), hidden=json) as report:
            written = await client.write(
                at.device,
                at.path,
                file,
                format=format,
                columns=columns.split(",") if columns else None,
                record=record,
                mode=mode,
                interrupt=interrupt,
                progress=report,
            )
    if json:
        screen.as_json({"device": at.device, "path": at.path, **asdict(written)})
    else:
        screen.line(f"{at}: {screen.size(written.bytes)} written")


@asynchronous
async def rm(
    path: DevicePath,
    interrupt: Interrupt = False,
    server: Server = DEFAULT_LOCATION,
) -> None:
    """Remove a file or an empty folder of a device."""
    at = target(path)
    async with AsyncFastFlightClient(server) as client:
        await client.remove(at.device, at.path, interrupt=interrupt)


@asynchronous
async def mkdir(path: DevicePath, interrupt: Interrupt = False, server: Server = DEFAULT_LOCATION) -> None:
    """Make a folder on a device."""
    at = target(path)
    async with AsyncFastFlightClient(server) as client:
        await client.mkdir(at.device, at.path, interrupt=interrupt)


@asynchronous
async def mv(
    path: DevicePath,
    to: Annotated[str, typer.Argument(metavar="PATH", help="The new path on the same device.")],
    interrupt: Interrupt = False,
    server: Server = DEFAULT_LOCATION,
) -> None:
    """Rename a file or folder of a device."""
    at = target(path)
    new = target(to) if ":" in to else target(f"{at.device}:{to}")
    if new.device != at.device:
        raise typer.BadParameter("both paths must be on one device; use get and put between devices")
    async with AsyncFastFlightClient(server) as client:
        await client.rename(at.device, at.path, new.path, interrupt=interrupt)


async def _screened(stream: AsyncRowStream) -> Any:
    preview = Preview(stream.schema)
    async for batch in stream:
        preview.add(batch)
    return preview.table()


async def _saved(stream: AsyncRowStream, path: Path, *, raw: bool) -> str:
    with LocalFile(path, stream.schema, raw=raw) as file:
        async for batch in stream:
            file.write(batch)
        if raw and (sha256 := stream.summary.get("sha256")):
            file.expect(sha256)
    rows = "" if raw else f", {stream.summary.get('rows', 0):,} rows"
    return f"{path}: {screen.size(file.bytes)}{rows}"


def _tell_rejected(summary: Summary) -> None:
    if count := summary.get("rejected", 0):
        first = next(iter(summary.get("rejected_rows", ())), None)
        example = f", the first at byte {first['offset']}: {first['reason']}" if first else ""
        rows = "1 row did not fit and was" if count == 1 else f"{count:,} rows did not fit and were"
        screen.complain(f"{rows} set aside{example}")
