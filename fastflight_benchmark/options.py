"""What every suite is told."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from fastflight_benchmark.flame import graph_of, profiled
from fastflight_benchmark.selection import Selection


@dataclass(frozen=True, slots=True)
class Options:
    """`server` is one that may answer already; `output` is the main CSV, its other files stand beside it.

    `only` chooses cells, and `profile` asks for a flame graph of the server, in the suites that have them.
    """

    server: str
    quick: bool
    runs: int
    output: Path
    console: Console
    only: Selection = Selection()
    profile: bool = False

    def say(self, text: str) -> None:
        """A line for people; what it quotes is not taken for markup."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def profiled(self, pid: int | None, run: int) -> contextlib.AbstractContextManager[None]:
        """A flame graph of a run's server, if one was asked for."""
        return profiled(pid, graph_of(self.output, run), self.say) if self.profile else contextlib.nullcontext()
