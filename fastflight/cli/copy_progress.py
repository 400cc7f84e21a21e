"""Shows the progress of a copy: how much is done, where it resumes, and what remains when it breaks off.

Also prints the result of a copy, in a line or as JSON.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from fastflight.cli import screen
from fastflight.cli.exits import Interrupted
from fastflight.client import Copied, CopiedTree
from fastflight.errors import TransportError

# Describes what remains of a copy that broke off, for an amount.
Kept = Callable[[str], str]


class CopyProgress:
    """Receives the progress of a copy, and draws it if there is a `bar`."""

    def __init__(self, label: str, *, hidden: bool, bar: screen.Bar | None) -> None:
        self._label = label
        self._hidden = hidden
        self._bar = bar
        self.done = 0
        self.total: int | None = None

    def report(self, rows: int, done: int, total: int | None) -> None:
        """A `Report`."""
        self.done, self.total = done, total
        if self._bar is not None:
            self._bar.move(done, total)

    def file(self, path: str, done: int, total: int) -> None:
        """A `TreeReport`."""
        self.done, self.total = done, total
        if self._bar is not None:
            self._bar.move(done, total, f"{self._label}  {path}")

    def resuming(self, at: int, total: int) -> None:
        """Called once, before the bytes after `at` are moved."""
        self.report(0, at, total)
        if self._bar is not None:
            self._bar.start_at(at, total)
        if not self._hidden:
            screen.complain(f"{self._label}: resuming at {screen.amount(at, total)}")

    def stays(self, kept: Kept | None) -> str:
        """Describes what remains of a copy that broke off; empty if nothing does."""
        return kept(screen.amount(self.done, self.total)) if kept is not None and self.done else ""


@contextmanager
def copy_progress(label: str, *, hidden: bool, kept: Kept | None = None) -> Iterator[CopyProgress]:
    """Show the progress of a copy. `kept` describes what remains if it breaks off; None where nothing does."""
    with screen.bar(label, hidden=hidden) as bar:
        followed = CopyProgress(label, hidden=hidden, bar=bar)
        try:
            yield followed
        except (asyncio.CancelledError, KeyboardInterrupt) as error:
            raise Interrupted(followed.stays(kept)) from error
        except TransportError as error:
            if stays := followed.stays(kept):
                error.hint = f"{error.hint}. {stays}".removeprefix(". ")
            raise


def tell_file(copied: Copied, label: str, done: str, told: Mapping[str, Any], *, json: bool) -> None:
    """The end of a file's copy. `done` is what was done to its bytes."""
    if json:
        screen.as_json({**told, **asdict(copied)})
    elif copied.unchanged:
        screen.line(f"{label}: unchanged")
    else:
        before = f", {screen.size(copied.resumed_at)} of it before" if copied.resumed_at else ""
        screen.line(f"{label}: {screen.size(copied.bytes)}{done}{before}")


def tell_tree(tree: CopiedTree, label: str, done: str, told: Mapping[str, Any], *, json: bool) -> None:
    """The end of a folder's copy. `done` is what was done to its files."""
    if json:
        screen.as_json({**told, **asdict(tree)})
        return
    if tree.skipped:
        screen.complain(f"left out, neither a file nor a folder: {', '.join(tree.skipped)}")
    files = "1 file" if len(tree.files) == 1 else f"{len(tree.files):,} files"
    parts = [f"{files}, {screen.size(tree.bytes)} {done}"] if tree.files else []
    if tree.unchanged:
        parts.append(f"{len(tree.unchanged):,} unchanged")
    screen.line(f"{label}: {'; '.join(parts) or 'no files'}")
