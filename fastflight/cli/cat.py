"""`fastflight cat` and `fastflight head`: print files of a device, or their beginnings, on standard output."""

from __future__ import annotations

import codecs
import io
import sys
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from fastflight.cli import screen
from fastflight.cli.arguments import opened, target
from fastflight.cli.copy_progress import copy_progress
from fastflight.cli.globs import expand
from fastflight.cli.interruption import interruptible
from fastflight.cli.options import DevicePath, DevicePaths, Interrupt
from fastflight.cli.server_options import DEFAULT_SERVER, Server, with_device_options
from fastflight.cli.text_options import NO_TEXT_OPTIONS, with_text_options
from fastflight.client.options import TextOptions
from fastflight.tables import format_of

if TYPE_CHECKING:
    from fastflight.client.board import Board

HEAD_ROWS = 10
# Holds ten lines of most texts. At 115200 baud, the device needs 0.4 s for it.
FIRST_PART_BYTES = 4096


@interruptible
@with_device_options
def cat(paths: DevicePaths, interrupt: Interrupt = False, server: Server = DEFAULT_SERVER) -> None:
    """Print the bytes of files of a device on standard output.

    On a terminal, characters that a terminal would obey are printed as escapes.
    """
    targets = [target(path) for path in paths]
    write = screen.bytes_writer()
    with server.boards() as boards:
        for at in expand(boards, targets, interrupt=interrupt, folders=False):
            with opened(boards, at.device, interrupt=interrupt) as board:
                print_bytes(board, at.path, write)


@interruptible
@with_device_options
@with_text_options
def head(
    path: DevicePath,
    rows: Annotated[
        int | None,
        typer.Option("-n", "--rows", metavar="ROWS", min=1, help=f"How many; by default {HEAD_ROWS}."),
    ] = None,
    size: Annotated[
        int | None, typer.Option("-c", "--bytes", metavar="BYTES", min=0, help="Print the first bytes instead.")
    ] = None,
    interrupt: Interrupt = False,
    text: TextOptions = NO_TEXT_OPTIONS,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Show the first rows of a file of a device as a table. Of a file without rows, print the first lines.

    Of a file that is not text, show the first bytes in hexadecimal.

    The device stops sending when they have come. The types are those of its first rows: 4 KiB, or all that are shown.
    To describe the rows of a file, as of a packed one, use `fastflight get --head N`.
    """
    if rows is not None and size is not None:
        raise typer.BadParameter("-n and -c exclude each other: leave one of them out")
    at = target(path)
    with server.boards() as boards, opened(boards, (at := at.of(boards)).device, interrupt=interrupt) as board:
        if size is not None:
            print_bytes(board, at.path, screen.bytes_writer(), limit=size)
        elif format_of(at.path) == "raw":
            _print_beginning(board, at.path, rows or HEAD_ROWS)
        else:
            from fastflight.cli import drawing
            from fastflight.cli.preview import HEAD_BATCH_ROWS, first_rows, preview_of

            count = rows or HEAD_ROWS
            few = min(count, HEAD_BATCH_ROWS)
            read = partial(boards.tables.read, board.name, at.path, batch_rows=few, infer="sample", sample_rows=few)
            with read(**text, interrupt=interrupt) as stream:
                drawing.show(preview_of(stream.schema, first_rows(stream, count), count))


def print_bytes(
    board: Board, path: str, write: Callable[[bytes], object], *, offset: int = 0, limit: int | None = None
) -> None:
    """Pass the bytes of a file to `write`: all from `offset` on, or only `limit` of them.

    Raises `DataError` after the last byte if these are not the bytes that the board has sent.
    """
    done = 0
    # A bar on the terminal that shows the bytes would be in their way.
    hidden = sys.stdout.isatty()
    with (
        copy_progress(f"{board.name}:{path}", hidden=hidden) as progress,
        closing(board.read(path, offset, limit)) as blocks,
    ):
        for data in blocks:
            write(data)
            done += len(data)
            progress.report(0, done, None)


def _print_beginning(board: Board, path: str, count: int) -> None:
    """Print the first `count` lines of a file, or of its bytes in hexadecimal. Reads parts of the file until it can."""
    write = screen.bytes_writer()
    offset, size = 0, FIRST_PART_BYTES
    while count:
        part = bytearray()
        print_bytes(board, path, part.extend, offset=offset, limit=size)
        if not offset and not _is_text(part):
            screen.lines(_hex_view(part, count))
            return
        lines = io.BytesIO(part).readlines()
        write(b"".join(lines[:count]))
        count = max(count - part.count(b"\n"), 0)
        if len(part) < size:
            return
        offset, size = offset + size, size * 2


def _is_text(data: bytes | bytearray) -> bool:
    """Whether the beginning of a file is UTF-8 without NUL bytes. Its last character may be cut."""
    try:
        return "\0" not in codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return False


def _hex_view(data: bytes | bytearray, count: int) -> str:
    """Return `count` lines of the hex view of `screen`, each after its offset."""
    starts = range(0, min(len(data), count * screen.HEX_BYTES), screen.HEX_BYTES)
    return "".join(
        f"{start:08x}  {screen.hex_line(bytes(data[start : start + screen.HEX_BYTES]))}\n" for start in starts
    )
