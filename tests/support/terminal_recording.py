"""Takes the recording of a terminal that README shows: real commands, and what they print.

    python -m tests.support.terminal_recording docs/terminal.svg

The result is an SVG in which one command appears after the other. Where nothing moves, it shows all of them. The
commands ask a server of this process, with a simulated board. Times and what the board measures differ each time.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from tests.support.servers import serving

COMMANDS = (
    "fastflight ls demo",
    "fastflight head demo:/readings.csv -n 3",
    "fastflight get demo:/readings.csv -o readings.parquet",
    "fastflight exec demo 'import os; print(os.uname().release)'",
    "fastflight tail demo -n 3",
    "fastflight get -r demo: backup",
)
WIDTH = 92
# Until a command is typed, and until its output appears.
TYPING_SECONDS, RUNNING_SECONDS = 1.2, 0.5
# The fonts that `rich` would load from the network.
FONT_FACE = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
# A piece of text, in its row of the terminal.
ROW = re.compile(r'<text (?=[^>]*clip-path="url\(#[\w-]+-line-(\d+)\)")')
APPEARING = """<style>
    @keyframes appear { from { opacity: 0 } to { opacity: 1 } }
    @media (prefers-reduced-motion: no-preference) { text[style] { animation: appear 0.2s backwards } }
    </style>"""


def recorded(commands: Sequence[str] = COMMANDS) -> str:
    """Return an SVG of a terminal in which `commands` run."""
    # When each row of the terminal appears.
    starts: list[float] = []
    console = Console(record=True, width=WIDTH, file=open(os.devnull, "w"), force_terminal=True)
    with tempfile.TemporaryDirectory() as folder, serving() as running:
        environment = {**os.environ, "FASTFLIGHT_SERVER": running.location, "COLUMNS": str(WIDTH)}
        for command in commands:
            now = (starts[-1] if starts else 0.0) + TYPING_SECONDS
            console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
            done = subprocess.run(
                [sys.executable, "-m", "fastflight", *shlex.split(command)[1:]],
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=True,
            )
            lines = done.stdout.splitlines()
            assert max(map(len, [*lines, f"$ {command}"])) <= WIDTH, f"a row is longer than the terminal: {command}"
            console.print(Text("\n".join(lines)))
            starts += [now, *[now + RUNNING_SECONDS] * len(lines)]
    console.file.close()
    svg = FONT_FACE.sub("", console.export_svg(title="fastflight")).replace("<style>", f"{APPEARING}\n    <style>", 1)
    return ROW.sub(lambda row: f'<text style="animation-delay: {starts[int(row[1])]:.1f}s" ', svg)


def main(target: Annotated[Path, typer.Argument(metavar="FILE")]) -> None:
    """Write the recording to an SVG file."""
    target.write_text(recorded(), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
