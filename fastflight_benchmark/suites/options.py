"""What every suite is told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console


@dataclass(frozen=True, slots=True)
class Options:
    """`server` is one that may answer already; `output` is the main CSV, its other files stand beside it."""

    server: str
    quick: bool
    runs: int
    output: Path
    console: Console
