"""What commands print: results on stdout, for people or as JSON; progress and complaints on stderr.

Much of it was written elsewhere: by a board, by a server, or as the name of a file. A terminal obeys escape sequences
in it: they set its title, move the cursor, and make some terminals type. All that is printed passes `printable` here:
stderr and tables always, other text where stdout is a terminal. In a pipe or a file such text stays as it is, and JSON
spells it as `\\u00XX`, which is the same value (docs/decisions/0053-text-from-elsewhere.md).
"""

from __future__ import annotations

import codecs
import io
import json
import os
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date, datetime, time
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.segment import Segment
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
    with _on_stdout():
        sys.stdout.write(printable_lines(text) if sys.stdout.isatty() else text)
        sys.stdout.flush()


def bytes_writer() -> Callable[[bytes], None]:
    """Return a function that prints bytes: as they are, or as text where stdout is a terminal."""
    if not sys.stdout.isatty():
        return _raw
    # A character or a line end may be cut by the end of a piece.
    text = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("backslashreplace"), translate=True)
    return lambda data: lines(text.decode(data))


def _raw(data: bytes) -> None:
    with _on_stdout():
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def complain(text: str) -> None:
    """Something went wrong, or wants to be noticed. What a device said of it may have several lines."""
    with unread_or_not(sys.stderr):
        sys.stderr.write(printable_lines(text) + "\n")
        sys.stderr.flush()


@contextmanager
def _on_stdout() -> Iterator[None]:
    """Name standard output in the error where it does not take what is written."""
    try:
        yield
    except BrokenPipeError:
        raise  # nobody reads it any more: the command ends quietly
    except OSError as error:
        give_up(sys.stdout)
        raise OSError(error.errno, error.strerror, "standard output") from error


@contextmanager
def unread_or_not(stream: TextIO) -> Iterator[None]:
    """Write to `stream`: that nobody reads it any more is no reason to leave what was to be done."""
    try:
        yield
    except BrokenPipeError:
        give_up(stream)
    except (OSError, ValueError):  # a full disk, or it is closed
        pass


def give_up(stream: TextIO) -> None:
    """Send what `stream` still holds, and what comes, nowhere.

    Python would try to write it as it ends, and make the failure the exit code.
    """
    with suppress(OSError, ValueError):  # a test's stream has no descriptor
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, stream.fileno())
        finally:
            os.close(nowhere)


def printable(text: str) -> str:
    """Return `text` as one line, with each character that a terminal would obey as Python escapes it.

    Those are controls (ESC, DEL and C1 among them), format characters (such as bidirectional overrides), separators of
    lines and halves of surrogate pairs.
    """
    return text if text.isprintable() else "".join(c if _is_shown(c) else repr(c)[1:-1] for c in text)


def printable_lines(text: str) -> str:
    """Return each line of `text` as `printable` does."""
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))


def _is_shown(character: str) -> bool:
    return character.isprintable() or character == "\t" or unicodedata.category(character) == "Zs"


def cell(text: str, style: str = "") -> Text:
    """Text of a table or a status line."""
    return Text(printable(text), style)


def as_json(value: Any) -> None:
    """A result for a script. NaN and infinities are null: JSON has none."""
    text = json.dumps(finite(value), default=_plain, ensure_ascii=False)
    line(text if text.isprintable() else "".join(c if _is_shown(c) else json.dumps(c)[1:-1] for c in text))


class Screen(Console):
    """A console that prints no control character but its own, whatever the renderables hold."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(printable_lines(segment.text), segment.style)


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    """A result for a person."""
    shown = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        shown.add_column(heading, justify="right" if heading in right else "left", no_wrap=True)
    for row in rows:
        shown.add_row(*map(cell, row))
    show(shown)


def show(content: Any) -> None:
    console = Screen()
    if console.is_terminal:
        with _on_stdout():
            console.print(content)
        return
    text = io.StringIO()
    Screen(width=PIPE_COLUMNS, file=text).print(content)
    lines("".join(f"{each.rstrip()}\n" for each in text.getvalue().splitlines()))


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
        self._task = drawn.add_task(printable(label), total=None)

    def start_at(self, done: int, total: int) -> None:
        """What is there before anything is moved."""
        self._drawn.reset(self._task, total=total, completed=done)

    def move(self, done: int, total: int | None, label: str | None = None) -> None:
        description = None if label is None else printable(label)
        self._drawn.update(self._task, completed=done, total=total, description=description)


@contextmanager
def bar(label: str, *, hidden: bool) -> Iterator[Bar | None]:
    """A bar with rate and time left; on a terminal only, and gone when done."""
    console = Screen(stderr=True)
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
