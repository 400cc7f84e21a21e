"""A name for the terminal of a board that restarts. It leads to that terminal, or to nothing.

The system gives a free terminal number (`/dev/pts/5`) to the next terminal, of any process. A server that opens a
board's port again could get the terminal of a stranger, and listen to it for ever. Linux only: there a descriptor that
stands for a file without opening it (`O_PATH`) has a name.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Self


class PortName:
    """`path` leads to the terminal that `aim` named last, while the context lasts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._held = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.path.unlink(missing_ok=True)
        self._let_go()

    def aim(self, terminal: str) -> None:
        """Lead to `terminal` from now on. It must exist."""
        held = os.open(terminal, os.O_PATH)
        fresh = self.path.with_suffix(".fresh")
        fresh.symlink_to(f"/proc/{os.getpid()}/fd/{held}")
        fresh.replace(self.path)
        self._let_go()
        self._held = held

    def _let_go(self) -> None:
        if self._held >= 0:
            os.close(self._held)
            self._held = -1
