"""Shows the progress of a copy: how much is done, where it resumes, and what an interrupted copy leaves.

Also prints the result of a copy, in a line or as JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Column

from fastflight.cli import screen
from fastflight.cli.exit_codes import Interrupted
from fastflight.client import Copied, CopiedTree
from fastflight.errors import TransportError

# Returns a sentence about what an interrupted copy leaves, for an amount as `screen.amount` formats it.
DescribeRest = Callable[[str], str]


class Bar:
    """The progress bar of a copy. Its rate counts only bytes that this command has copied."""

    def __init__(self, progress: Progress, label: str) -> None:
        self._progress = progress
        self._task = progress.add_task(screen.printable(label), total=None)

    def start_at(self, done: int, total: int) -> None:
        """Begin at `done` of `total` bytes, which an earlier run has copied."""
        self._progress.reset(self._task, total=total, completed=done)

    def move(self, done: int, total: int | None, label: str | None = None) -> None:
        """Set the number of bytes that are copied, and the label unless it is None."""
        description = None if label is None else screen.printable(label)
        self._progress.update(self._task, completed=done, total=total, description=description)


@contextmanager
def bar(label: str, *, hidden: bool) -> Iterator[Bar | None]:
    """Draw a progress bar on stderr while the block runs. Yields None if `hidden` or if stderr is no terminal."""
    console = screen.Screen(stderr=True)
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
    with Progress(*columns, console=console, transient=True, expand=True) as progress:
        yield Bar(progress, label)


class CopyProgress:
    """Receives the progress of a copy, and draws it if there is a `bar`. Amounts are bytes."""

    def __init__(self, label: str, *, hidden: bool, bar: Bar | None) -> None:
        self._label = label
        self._hidden = hidden
        self._bar = bar
        self.done = 0
        self.total: int | None = None

    def report(self, rows: int, done: int, total: int | None) -> None:
        """Take the progress of one file: the client's `Report` callback."""
        self.done, self.total = done, total
        if self._bar is not None:
            self._bar.move(done, total)

    def file(self, path: str, done: int, total: int) -> None:
        """Take the progress of a folder, of which `path` is being copied: the client's `TreeReport` callback."""
        self.done, self.total = done, total
        if self._bar is not None:
            self._bar.move(done, total, f"{self._label}  {path}")

    def resuming(self, at: int, total: int) -> None:
        """Say that a copy continues after its first `at` bytes: the client's `Resuming` callback."""
        self.report(0, at, total)
        if self._bar is not None:
            self._bar.start_at(at, total)
        if not self._hidden:
            screen.complain(f"{self._label}: resuming at {screen.amount(at, total)}")

    def rest(self, describe: DescribeRest | None) -> str:
        """Return a sentence about what the interrupted copy leaves; empty if it leaves nothing."""
        return describe(screen.amount(self.done, self.total)) if describe is not None and self.done else ""


@contextmanager
def copy_progress(label: str, *, hidden: bool, describe_rest: DescribeRest | None = None) -> Iterator[CopyProgress]:
    """Show the progress of a copy while the block runs. `hidden`: print nothing.

    If the copy is interrupted or loses the server or the device, `describe_rest` describes what it leaves. The text
    goes into `Interrupted` or into the error's hint. None: it leaves nothing.
    """
    with bar(label, hidden=hidden) as drawn:
        progress = CopyProgress(label, hidden=hidden, bar=drawn)
        try:
            yield progress
        except KeyboardInterrupt as error:
            raise Interrupted(progress.rest(describe_rest)) from error
        except TransportError as error:
            if rest := progress.rest(describe_rest):
                error.hint = f"{error.hint}. {rest}".removeprefix(". ")
            raise


def print_file_result(copied: Copied, label: str, verb: str, paths: Mapping[str, Any], *, json: bool) -> None:
    """Print the result of copying a file. `verb` follows the size, as in " written"; `paths` go into the JSON."""
    if json:
        screen.as_json({**paths, **asdict(copied)})
    elif copied.unchanged:
        screen.line(f"{label}: unchanged")
    else:
        earlier = f", {screen.size(copied.resumed_at)} of it earlier" if copied.resumed_at else ""
        screen.line(f"{label}: {screen.size(copied.bytes)}{verb}{earlier}")


def print_tree_result(tree: CopiedTree, label: str, verb: str, paths: Mapping[str, Any], *, json: bool) -> None:
    """Print the result of copying a folder. `verb` is "read" or "written"; `paths` go into the JSON."""
    if json:
        screen.as_json({**paths, **asdict(tree)})
        return
    if tree.skipped:
        screen.complain(f"not copied, neither files nor folders: {', '.join(tree.skipped)}")
    files = "1 file" if len(tree.files) == 1 else f"{len(tree.files):,} files"
    parts = [f"{files}, {screen.size(tree.bytes)} {verb}"] if tree.files else []
    if tree.unchanged:
        parts.append(f"{len(tree.unchanged):,} unchanged")
    if tree.removed:
        parts.append(f"{len(tree.removed):,} removed")
    parts = parts or ["no files"]
    if tree.ignored:
        parts.append(f"{len(tree.ignored):,} left out")
    screen.line(f"{label}: {'; '.join(parts)}")
