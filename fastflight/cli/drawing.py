"""Draws with rich: styled text, previews of rows, pages that are redrawn. All text is printed as in `screen`.

Loading rich takes as long as many commands take to run, so only modules whose commands draw import this one.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

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
from rich.table import Column
from rich.text import Text

from fastflight.cli.screen import lines, on_stdout, printable, printable_lines

# The width of tables in a pipe or a file. Without it, rich would cut lines at the width of a terminal.
PIPE_COLUMNS = 10_000


class Screen(Console):
    """A console that escapes control characters in everything it draws, except its own."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(printable_lines(segment.text), segment.style)


def cell(text: str, style: str = "") -> Text:
    """Return printable text for a table or a status line. `style` is one of rich's."""
    return Text(printable(text), style)


def show(content: Any) -> None:
    """Print anything that rich can render on stdout; in a pipe or a file, without cutting lines."""
    console = Screen()
    if console.is_terminal:
        with on_stdout():
            console.print(content)
        return
    text = io.StringIO()
    Screen(width=PIPE_COLUMNS, file=text).print(content)
    lines("".join(f"{each.rstrip()}\n" for each in text.getvalue().splitlines()))


class CopyBar:
    """A progress bar on stderr, from its creation until `clear`. The rate counts bytes after the first `done`."""

    def __init__(self, done: int) -> None:
        label = Column(ratio=1, no_wrap=True, overflow="ellipsis")
        self._progress = Progress(
            TextColumn("{task.description}", markup=False, table_column=label),
            BarColumn(bar_width=20),
            TaskProgressColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(compact=True),
            console=Screen(stderr=True),
            transient=True,
            expand=True,
        )
        self._task = self._progress.add_task("", total=None, completed=done)
        self._progress.start()

    def move(self, done: int, total: int | None, label: str) -> None:
        """Set the number of bytes that are copied, and the label."""
        self._progress.update(self._task, completed=done, total=total, description=printable(label))

    def clear(self) -> None:
        """Remove the bar."""
        self._progress.stop()
