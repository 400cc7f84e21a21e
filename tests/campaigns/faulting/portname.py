"""A name for the terminal of a board that comes and goes: it leads to that one terminal, or to nobody.

The system gives a terminal's number (`/dev/pts/5`) to the next one that is made, whoever makes it. A server that opens
a board's port again in between would listen to a stranger's, for ever. Linux only: a descriptor that stands for the
file, without having it open, has a name of its own.
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
        """Lead to `terminal`, which is there, from now on."""
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
