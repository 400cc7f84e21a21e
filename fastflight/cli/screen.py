"""What commands print: results on stdout, for people or as JSON; progress and complaints on stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time
from typing import Any, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Column, Table
from rich.text import Text

from fastflight.tables.writing import finite

# A pipe has no width: its reader must not get lines cut to that of a terminal.
PIPE_COLUMNS = 10_000


def line(text: str) -> None:
    """One line of a result."""
    lines(text + "\n")


def lines(text: str) -> None:
    """Lines of a result, each with its end."""
    sys.stdout.write(text)
    sys.stdout.flush()


def complain(text: str) -> None:
    """Something went wrong, or wants to be noticed. What a device said of it may have several lines."""
    with unread_or_not(sys.stderr):
        sys.stderr.write("\n".join(map(printable, text.split("\n"))) + "\n")
        sys.stderr.flush()


@contextmanager
def unread_or_not(stream: TextIO) -> Iterator[None]:
    """Write to `stream`: that nobody reads it any more is no reason to leave what was to be done.

    What it holds goes nowhere then. Python would try it again as it ends, and make that the exit code.
    """
    try:
        yield
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (OSError, ValueError):  # a full disk, or it is closed
        pass


def printable(text: str) -> str:
    """Text that does not move the cursor or set the terminal's title: what a board says, or calls its files."""
    return "".join(each if each.isprintable() or each == "\t" else f"\\x{ord(each):02x}" for each in text)


def as_json(value: Any) -> None:
    """A result for a script. NaN and infinities are null: JSON has none."""
    line(json.dumps(finite(value), default=_plain, ensure_ascii=False))


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    """A result for a person."""
    shown = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        shown.add_column(heading, justify="right" if heading in right else "left", no_wrap=True)
    for row in rows:
        shown.add_row(*(Text(printable(cell)) for cell in row))
    show(shown)


def show(content: Any) -> None:
    console = Console()
    if console.is_terminal:
        console.print(content)
        return
    console = Console(width=PIPE_COLUMNS)
    with console.capture() as captured:
        console.print(content)
    for text in captured.get().splitlines():
        line(text.rstrip())


def size(number: int | None) -> str:
    """Bytes for people: exact below 10,000, in decimal units above."""
    if number is None:
        return "-"
    if number < 10_000:
        return f"{number} B"
    for unit, bytes_each in (("kB", 10**3), ("MB", 10**6)):
        if number < bytes_each * 1000:
            return f"{number / bytes_each:.1f} {unit}"
    return f"{number / 10**9:.1f} GB"


def amount(done: int, total: int | None) -> str:
    """How much of how much, for people."""
    return size(done) if total is None else f"{size(done)} of {size(total)}"


class Bar:
    """How far a copy is. The rate is that of the bytes that were moved, not of those that were there before."""

    def __init__(self, drawn: Progress, label: str) -> None:
        self._drawn = drawn
        self._task = drawn.add_task(label, total=None)

    def start_at(self, done: int, total: int) -> None:
        """What is there before anything is moved."""
        self._drawn.reset(self._task, total=total, completed=done)

    def move(self, done: int, total: int | None, label: str | None = None) -> None:
        self._drawn.update(self._task, completed=done, total=total, description=label)


@contextmanager
def bar(label: str, *, hidden: bool) -> Iterator[Bar | None]:
    """A bar with rate and time left; on a terminal only, and gone when done."""
    console = Console(stderr=True)
    if hidden or not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
        BarColumn(bar_width=20),
        TaskProgressColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console, transient=True, expand=True) as drawn:
        yield Bar(drawn, label)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return str(value)
