"""Suite `commands`: how long daily tasks take at the command line, and how many keys a person types, beside mpremote.

The tools are `fastflight` with a running server, `fastflight` without a server, and mpremote. Each has a simulated
board of its own at 115200 baud, on a pseudo-terminal, with the same files. They take turns at each task. The time is
from the start of the process to its end, except for tasks that the board times. The printed text and the files show
whether the outcome is correct. Keys are counted for the shortest line that works with one board plugged in, with Enter.
The measured command also names the board's port.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fastflight_benchmark import output, report
from fastflight_benchmark.options import Options
from fastflight_benchmark.peers.running import FREE_PORT
from fastflight_benchmark.simulated import SimulatedBoard
from fastflight_benchmark.spawned import spawned
from fastflight_benchmark.suites.commands.tasks import (
    BOARD,
    EDITOR,
    LOCAL,
    MPREMOTE,
    ON_BOARD,
    SERVER,
    TASKS,
    TOOLS,
    Task,
)

BAUD = 115200
# Lines that a board prints in a second, for `tail` and `plot`.
TELEMETRY = 10
# A limit far above need: mpremote takes 4 s for the largest file at this rate.
TASK_SECONDS = 60.0
COLUMNS = ["task", "tool", "typed", "keys", "run", "seconds", "outcome", "error"]
# What a board prints for a task that it times.
TOOK = re.compile(r"took (\d+) ms")
DONE, WRONG, IMPOSSIBLE = "done", "wrong", "not possible"


@dataclass(frozen=True, slots=True)
class Place:
    """A tool's surroundings: the folder of its board, the options before and after the command, the environment."""

    board: Path
    before: Sequence[str]
    after: Sequence[str]
    environment: Mapping[str, str]


def run(options: Options, tasks: Sequence[Task] = TASKS) -> int:
    """Measure, save and show. Return how many tasks failed, without tasks that a tool has no command for."""
    description = options.describe("commands", {"tasks": len(tasks), "baud": BAUD})
    options.say(f"{len(tasks)} tasks by {len(TOOLS)} tools; a server and boards of its own, --server is not used")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="fastflight-commands-") as folder, places(Path(folder)) as place_of:
        with options.progress(options.runs * len(tasks)) as step:
            for number in range(1, options.runs + 1):
                for at, task in enumerate(tasks):
                    step(task.name)
                    first = (at + number) % len(TOOLS)
                    turns = TOOLS[first:] + TOOLS[:first]
                    rows += [{"run": number} | measured(task, tool, place_of[tool]) for tool in turns]
    raw = pd.DataFrame(rows, columns=COLUMNS)
    result = summary(raw)
    output.save(options.output, result, {"raw": raw}, description)
    show(options, result)
    failed = raw[raw["error"] != ""]
    report.show_end(options.console, description, failed["error"], options.output)
    return len(failed)


@contextlib.contextmanager
def places(folder: Path) -> Iterator[Mapping[str, Place]]:
    """Start a board for each tool, and a server for one of the boards."""
    with contextlib.ExitStack() as stack:
        boards = {
            tool: stack.enter_context(SimulatedBoard(folder / f"board{number}", BAUD, "--telemetry", str(TELEMETRY)))
            for number, tool in enumerate(TOOLS)
        }
        server = stack.enter_context(
            spawned("fastflight", "serve", "--server", FREE_PORT, "--device", f"board={boards[SERVER].path}")
        )
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("FASTFLIGHT_", "VISUAL"))}
        clean["EDITOR"] = EDITOR
        yield {
            SERVER: Place(boards[SERVER].folder, (), (), {**clean, "FASTFLIGHT_SERVER": server.location}),
            BOARD: Place(boards[BOARD].folder, (), ("--device", boards[BOARD].path), clean),
            MPREMOTE: Place(boards[MPREMOTE].folder, ("connect", boards[MPREMOTE].path), (), clean),
        }


# Commands of fastflight that use no board, and so do not accept `--device`.
WITHOUT_BOARD = frozenset({"ports", "--version", "--help"})


def measured(task: Task, tool: str, place: Place) -> dict[str, Any]:
    """Do a task once, in a new folder. Return a row of `COLUMNS` without its run."""
    typed = task.typed(tool)
    row = {"task": task.name, "tool": tool, "typed": typed, "keys": len(typed) + 1 if typed else 0}
    arguments = task.arguments(tool)
    if arguments is None:
        return row | {"seconds": float("nan"), "outcome": IMPOSSIBLE, "error": ""}
    fill(place.board, ON_BOARD)
    module = "mpremote" if tool == MPREMOTE else "fastflight"
    with tempfile.TemporaryDirectory(prefix="fastflight-here-") as here:
        fill(Path(here), LOCAL)
        after = () if arguments[0] in WITHOUT_BOARD else place.after
        command = [sys.executable, "-m", module, *place.before, *arguments, *after]
        began = time.perf_counter()
        try:
            ended = subprocess.run(
                command,
                cwd=here,
                env=dict(place.environment),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TASK_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return row | {"seconds": TASK_SECONDS, "outcome": WRONG, "error": f"{typed}: took {TASK_SECONDS:g} s"}
        seconds = time.perf_counter() - began
        correct = ended.returncode == 0 and task.check(place.board, Path(here), ended.stdout)
    if task.timed_by_board and (took := TOOK.search(ended.stdout)):
        seconds = int(took[1]) / 1000
    error = "" if correct else f"{typed}: exit code {ended.returncode}: {(ended.stderr or ended.stdout).strip()[-200:]}"
    return row | {"seconds": seconds, "outcome": DONE if correct else WRONG, "error": error}


def fill(folder: Path, files: Mapping[str, str]) -> None:
    """Give `folder`, which is one of this suite's own, the files that a task begins with, and no others.

    The board's `main.py` stays: it prints the live output.
    """
    for entry in folder.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name != "main.py":
            entry.unlink()
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def summary(raw: pd.DataFrame) -> pd.DataFrame:
    """Return the median of each task by each tool, in the order of the tasks."""
    keys = ["task", "tool", "typed", "keys"]
    groups = raw.groupby(keys, sort=False)
    result = groups["seconds"].agg(["median", "min", "max"]).reset_index()
    outcomes = groups["outcome"].agg(lambda values: WRONG if WRONG in set(values) else values.iloc[0])
    return result.assign(outcome=outcomes.to_numpy())


def show(options: Options, result: pd.DataFrame) -> None:
    """Show a line for each task: seconds and keys of each tool."""
    grid = report.table(
        "Daily tasks at the command line: median seconds from start to end, and keys", ("task",), *TOOLS
    )
    for task, rows in result.groupby("task", sort=False):
        cells = rows.set_index("tool")
        grid.add_row(str(task), *(_cell(cells.loc[tool].to_dict()) if tool in cells.index else "-" for tool in TOOLS))
    options.console.print(grid)


def _cell(row: Mapping[Any, Any]) -> str:
    return f"{row['median']:.2f} s, {row['keys']} keys" if row["outcome"] == DONE else str(row["outcome"])


def markdown(result: pd.DataFrame) -> str:
    """Return the result as a table for a page: a line for each task, with what is typed."""
    lines = [
        "| task | `fastflight` ... | with a server | without one | `mpremote` ... | time |",
        "|---|---|---:|---:|---|---:|",
    ]
    for task, rows in result.groupby("task", sort=False):
        cells = {tool: row.to_dict() for tool, row in rows.set_index("tool").iterrows()}
        times = {tool: _time(cells[tool]) for tool in TOOLS}
        ours, theirs = (str(cells[tool]["typed"]).partition(" ")[2] for tool in (SERVER, MPREMOTE))
        peer = "no command" if cells[MPREMOTE]["outcome"] == IMPOSSIBLE else f"`{theirs}`"
        lines.append(f"| {task} | `{ours}` | {times[SERVER]} | {times[BOARD]} | {peer} | {times[MPREMOTE]} |")
    return "\n".join(lines)


def _time(row: Mapping[Any, Any]) -> str:
    return f"{row['median']:.2f} s" if row["outcome"] == DONE else {IMPOSSIBLE: ""}.get(row["outcome"], "failed")
