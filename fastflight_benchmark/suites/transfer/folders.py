"""Part of the suite `transfer`: whole commands that copy a folder to a board, by fastflight, mpremote and mpytool.

Each command is a process of its own, timed from its start to its end: `fastflight` without a server. A tool copies a
folder to an empty board, and then the same folder again, of which nothing has changed. The files in the board's folder
show whether the outcome is correct. The tools take turns, in another order in each run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from fastflight_benchmark.report import table
from fastflight_benchmark.simulated import SimulatedBoard
from fastflight_benchmark.suites.transfer.contents import make

FASTFLIGHT, MPREMOTE, MPYTOOL = "fastflight", "mpremote", "mpytool"
TOOLS = (FASTFLIGHT, MPREMOTE, MPYTOOL)
COLUMNS = ["line", "folder", "tool", "time", "run", "seconds", "equal", "files", "error"]
FIRST_TIME, UNCHANGED = "first", "unchanged"
# A limit far above need: mpremote takes 70 s for 200 kB at 115200.
COPY_SECONDS = 300.0
# The baud rate that the tools name for a line without a pace.
HIGHEST_BAUD = 4_000_000


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of text files of one size."""

    name: str
    files: int
    size: int

    def fill(self, folder: Path) -> None:
        """Make the files. Each has other content."""
        text = make("csv", self.size + self.files)
        folder.mkdir()
        for number in range(self.files):
            (folder / f"file{number}.csv").write_bytes(text[number : number + self.size])


FOLDERS = (Folder("4 x 50 kB", 4, 50_000), Folder("50 x 4 kB", 50, 4_000))


def command(tool: str, port: str, baud: int, folder: str) -> list[str]:
    """Return the command that copies `folder` to a folder of the same name on the board."""
    if tool == FASTFLIGHT:
        return ["fastflight", "put", "-r", folder, ":/", "--device", f"serial://{port}?baud={baud}"]
    if tool == MPREMOTE:
        return ["mpremote", "connect", port, "cp", "-r", folder, ":"]
    return ["mpytool", "-p", port, "-b", str(baud), "cp", folder, ":/"]


def measured(lines: Sequence[int], runs: int, step: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """Yield the rows of all copies."""
    for number in range(1, runs + 1):
        for line in lines:
            for place, folder in enumerate(FOLDERS):
                first = (number + place) % len(TOOLS)
                for tool in TOOLS[first:] + TOOLS[:first]:
                    step(f"{tool}, {folder.name}")
                    yield from copies(tool, folder, line, number)


def copies(tool: str, folder: Folder, line: int, run: int) -> Iterator[dict[str, Any]]:
    with (
        tempfile.TemporaryDirectory(prefix="fastflight-folders-") as place,
        SimulatedBoard(Path(place) / "board", line) as board,
    ):
        here = Path(place) / "app"
        folder.fill(here)
        words = command(tool, board.path, line or HIGHEST_BAUD, here.name)
        for occasion in (FIRST_TIME, UNCHANGED):
            seconds, error = _timed(words, Path(place))
            there = board.folder / here.name
            equal = sum(
                (there / file.name).is_file() and (there / file.name).read_bytes() == file.read_bytes()
                for file in here.iterdir()
            )
            yield {
                "line": line,
                "folder": folder.name,
                "tool": tool,
                "time": occasion,
                "run": run,
                "seconds": seconds,
                "equal": equal,
                "files": folder.files,
                "error": error or ("" if equal == folder.files else "files on the board are not equal"),
            }


def _timed(words: Sequence[str], folder: Path) -> tuple[float, str]:
    """Run a command of this environment. Return the seconds, and what went wrong."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FASTFLIGHT_")}
    began = time.perf_counter()
    try:
        ended = subprocess.run(
            [Path(sys.executable).with_name(words[0]), *words[1:]],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COPY_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return COPY_SECONDS, f"{words[0]} took {COPY_SECONDS:g} s"
    seconds = time.perf_counter() - began
    said = (ended.stderr or ended.stdout).strip()[-200:]
    return seconds, f"{words[0]}: exit code {ended.returncode}: {said}" if ended.returncode else ""


def show(console: Console, raw: pd.DataFrame, name_of: Callable[[int], str]) -> None:
    """Show the median of each copy, and which tools brought not all files."""
    columns = [f"{tool}, {occasion}" for tool in TOOLS for occasion in (FIRST_TIME, UNCHANGED)]
    grid = table(
        "Commands that copy a folder to a board: median seconds, with their start", ("line", "folder"), *columns
    )
    for (line, folder), group in raw.groupby(["line", "folder"], sort=False):
        grid.add_row(
            name_of(int(str(line))),
            str(folder),
            *(_cell(group, tool, at) for tool in TOOLS for at in (FIRST_TIME, UNCHANGED)),
        )
    console.print(grid)


def _cell(group: pd.DataFrame, tool: str, occasion: str) -> str:
    rows = group[(group["tool"] == tool) & (group["time"] == occasion)]
    if (rows["error"] != "").any():
        return f"failed, {rows['equal'].min()}/{rows['files'].max()} files"
    return f"{rows['seconds'].median():.2f}"
