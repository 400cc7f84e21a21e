"""Shows the progress of a copy: how much is done, where it resumes, and what an interrupted copy leaves."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fastflight.cli import screen
from fastflight.cli.exit_codes import Interrupted
from fastflight.client import Report
from fastflight.errors import TransportError

if TYPE_CHECKING:
    from fastflight.cli.drawing import CopyBar

# Returns a sentence about what an interrupted copy leaves, for an amount as `screen.amount` formats it.
DescribeRest = Callable[[str], str]

# A copy that ends sooner shows no bar: loading rich, which draws it, would take longer than the copy.
BAR_AFTER_SECONDS = 0.5


class Bar:
    """The progress bar of a copy on the terminal of stderr. Its rate counts only bytes that this command has copied."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._drawn: CopyBar | None = None

    def move(self, done: int, total: int | None, label: str) -> None:
        """Set the number of bytes that are copied, and the label."""
        if self._drawn is None and time.monotonic() - self._began >= BAR_AFTER_SECONDS:
            from fastflight.cli.drawing import CopyBar  # not at the top: it loads rich

            self._drawn = CopyBar(done)
        if self._drawn is not None:
            self._drawn.move(done, total, label)

    def clear(self) -> None:
        """Remove the line."""
        if self._drawn is not None:
            self._drawn.clear()


class CopyProgress:
    """Receives the progress of a copy, and draws it on a terminal unless it is `hidden`. Amounts are bytes."""

    def __init__(self, label: str, *, hidden: bool) -> None:
        self._label = label
        self._hidden = hidden
        self._bar = Bar() if not hidden and sys.stderr.isatty() else None
        self.done = 0
        self.total: int | None = None

    @property
    def drawn(self) -> Report | None:
        """`report`, if there is a bar: the server is asked for its progress only then."""
        return None if self._bar is None else self.report

    def report(self, rows: int, done: int, total: int | None) -> None:
        """Take the progress of one file: the client's `Report` callback."""
        self.done, self.total = done, total
        if self._bar is not None:
            self._bar.move(done, total, self._label)

    def file(self, path: str, done: int, total: int) -> None:
        """Take the progress of a folder, of which `path` is being copied: the client's `TreeReport` callback."""
        self.done, self.total = done, total
        if self._bar is not None:
            self._bar.move(done, total, f"{self._label}  {path}")

    def resuming(self, at: int, total: int) -> None:
        """Say that a copy continues after its first `at` bytes: the client's `Resuming` callback."""
        if not self._hidden:
            screen.complain(f"{self._label}: resuming at {screen.amount(at, total)}")
        self.report(0, at, total)

    def end(self) -> None:
        """Remove what is drawn."""
        if self._bar is not None:
            self._bar.clear()

    def rest(self, describe: DescribeRest | None) -> str:
        """Return a sentence about what the interrupted copy leaves; empty if it leaves nothing."""
        return describe(screen.amount(self.done, self.total)) if describe is not None and self.done else ""


@contextmanager
def copy_progress(label: str, *, hidden: bool, describe_rest: DescribeRest | None = None) -> Iterator[CopyProgress]:
    """Show the progress of a copy while the block runs. `hidden`: print nothing.

    If the copy is interrupted or loses the server or the device, `describe_rest` describes what it leaves. The text
    goes into `Interrupted` or into the error's hint. None: it leaves nothing.
    """
    progress = CopyProgress(label, hidden=hidden)
    try:
        yield progress
    except KeyboardInterrupt as error:
        raise Interrupted(progress.rest(describe_rest)) from error
    except TransportError as error:
        if rest := progress.rest(describe_rest):
            error.hint = f"{error.hint}. {rest}".removeprefix(". ")
        raise
    finally:
        progress.end()
