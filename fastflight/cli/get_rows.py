"""The rows that `fastflight get` converts or shows: saved in a file, printed, or as a table on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import typer
from rich.console import Group

from fastflight.cli import drawing, screen
from fastflight.cli.arguments import Target
from fastflight.cli.copy_progress import copy_progress
from fastflight.cli.exit_codes import REFUSED
from fastflight.cli.preview import HEAD_BATCH_ROWS, first_rows, preview_of
from fastflight.client import RowStream
from fastflight.client.saving import SavedFile
from fastflight.client.stream import Summary
from fastflight.client.validation import ABOUT_ROWS, validating
from fastflight.errors import DataError, RequestError, quantity
from fastflight.tables import Layout, open_writer

TEXT_FORMATS = ("csv", "jsonl", "arrow")


def read_rows(
    read: Callable[..., RowStream], at: Target, *, head: int | None, path: Path | None, printed: str | None, json: bool
) -> None:
    """Read the rows of a request, for the file or the files at `at`. `head`: only the first rows.

    They go to standard output in the format `printed`, or to the file at `path`. With neither, show a table.
    """
    with copy_progress(str(at), hidden=json or (printed is not None and sys.stdout.isatty())) as progress:
        stream = read(batch_rows=None if head is None else min(head, HEAD_BATCH_ROWS), progress=progress.drawn)
        with stream:
            batches: Iterable[pa.RecordBatch] = stream if head is None else first_rows(stream, head)
            result: Group | str | None = None
            if printed is not None:
                print_rows(stream.schema, batches, printed)
            elif path is not None:
                result = save_rows(stream, batches, path)
            else:
                result = preview_of(stream.schema, batches, head)
    summary = _summary(stream, head)
    if json:
        types = {field.name: str(field.type) for field in stream.schema}
        paths = {"device": at.device, "path": at.path, "output": None if path is None else str(path)}
        screen.as_json({**paths, "columns": types, **summary})
    else:
        if result is not None:
            drawing.show(result)
    _report_failed(summary)


def save_rows(stream: RowStream, batches: Iterable[pa.RecordBatch], path: Path) -> str:
    """Write `batches`, which are rows of `stream`, to a local file. Return a sentence about it."""
    rows = 0
    with SavedFile(path, stream.schema) as file:
        for batch in batches:
            file.write(batch)
            rows += batch.num_rows
        file.add_summary(_summary(stream, rows))
    return f"{path}: {screen.size(file.bytes)}, {quantity(rows, 'row')}"


def text_format(format: str) -> str:
    """Return the format in which rows that were read from `format` are printed."""
    return format if format in TEXT_FORMATS else "csv"


def print_rows(schema: pa.Schema, batches: Iterable[pa.RecordBatch], format: str) -> None:
    """Print rows on standard output."""
    write = screen.bytes_writer()
    try:
        writer = open_writer(Layout(format, bytes_as="base64"), schema.remove_metadata())
        write(writer.begin())
        for batch in batches:
            write(writer.encode(batch))
        write(writer.finish())
    except pa.ArrowException as error:
        raise DataError(str(error), where="standard output") from error


def _summary(stream: RowStream, head: int | None) -> Summary:
    """Return the server's summary, or what is known if the stream was cancelled after `head` rows."""
    try:
        return stream.summary
    except RequestError:
        return {"rows": head}


def _report_failed(summary: Summary) -> None:
    """Name the devices that could not be read, and end with exit code 1 if there are any."""
    with validating(ABOUT_ROWS):
        failed = summary.get("failed", ())
        for failure in failed:
            where = failure.get("where") or failure["device"]
            screen.complain(f"error: {where}: {failure['what']}. {failure.get('hint', '')}".rstrip(". "))
    if failed:
        raise typer.Exit(REFUSED)
