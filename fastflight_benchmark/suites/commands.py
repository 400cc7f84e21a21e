"""Suite `commands`: how long daily tasks take at the command line, and how many keys a person types, beside mpremote.

The tools are `fastflight` with a running server, `fastflight` without a server, and mpremote. Each has a simulated
board of its own at 115200 baud, on a pseudo-terminal, with the same files. They take turns at each task. The time is
from the start of the process to its end, except for tasks that the board times. The printed text and the files show
whether the outcome is correct. Keys are counted for the shortest line that works with one board plugged in, with Enter.
The measured command also names the board's port.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fastflight.errors import DataError
from fastflight_benchmark.engine import LESS, Bench, Figures, Measure, Suite
from fastflight_benchmark.peers.running import FREE_PORT
from fastflight_benchmark.processes import finished, spawned, users_environment
from fastflight_benchmark.simulated import SimulatedBoard
from fastflight_benchmark.tasks import BOARD, EDITOR, LOCAL, MPREMOTE, ON_BOARD, SERVER, TASKS, TOOLS, Task

BAUD = 115200
# Lines that a board prints in a second, for `tail` and `plot`.
TELEMETRY = 10
# A limit far above need: mpremote takes 4 s for the largest file at this rate.
TASK_SECONDS = 60.0
# What a board prints for a task that it times.
TOOK = re.compile(r"took (\d+) ms")
# Commands of fastflight that use no board, and so do not accept `--device`.
WITHOUT_BOARD = frozenset({"ports", "--version", "--help"})


@dataclass(frozen=True, slots=True)
class Place:
    """A tool's surroundings: the folder of its board, the options before and after the command, the environment."""

    board: Path
    before: Sequence[str]
    after: Sequence[str]
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Scope:
    """How many of the tasks are done."""

    tasks: int


FULL, QUICK = Scope(len(TASKS)), Scope(6)


def run(bench: Bench) -> None:
    """Do every task with every tool that has a command for it."""
    tasks = TASKS[: bench.scope(FULL, QUICK).tasks]
    bench.say(f"{len(tasks)} tasks by {len(TOOLS)} tools; a server and boards of its own, --server is not used")
    with tempfile.TemporaryDirectory(prefix="fastflight-commands-") as folder, places(Path(folder)) as place_of:
        for round_ in bench.rounds():
            for task in tasks:
                contenders = {tool: partial(measured, task, tool, place_of[tool]) for tool in TOOLS if task.typed(tool)}
                bench.measure({"task": task.name}, contenders, [round_])


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
        clean = users_environment() | {"EDITOR": EDITOR}
        yield {
            SERVER: Place(boards[SERVER].folder, (), (), {**clean, "FASTFLIGHT_SERVER": server.location}),
            BOARD: Place(boards[BOARD].folder, (), ("--device", boards[BOARD].path), clean),
            MPREMOTE: Place(boards[MPREMOTE].folder, ("connect", boards[MPREMOTE].path), (), clean),
        }


def measured(task: Task, tool: str, place: Place) -> Figures:
    """Do a task once, in a new folder. `DataError` if the outcome is wrong."""
    arguments, typed = task.arguments(tool) or [], task.typed(tool)
    fill(place.board, ON_BOARD)
    module = "mpremote" if tool == MPREMOTE else "fastflight"
    with tempfile.TemporaryDirectory(prefix="fastflight-here-") as here:
        fill(Path(here), LOCAL)
        after = () if arguments[0] in WITHOUT_BOARD else place.after
        command = [sys.executable, "-m", module, *place.before, *arguments, *after]
        ended = finished(
            command, TASK_SECONDS, folder=Path(here), environment=place.environment, where=typed, right=frozenset()
        )
        if ended.code or not task.check(place.board, Path(here), ended.output):
            text = (ended.errors or ended.output).strip()[-200:]
            raise DataError(f"wrong outcome, exit code {ended.code}: {text}", where=typed)
    seconds = ended.seconds
    if task.timed_by_board and (took := TOOK.search(ended.output)):
        seconds = int(took[1]) / 1000
    return {"time": seconds, "keys": len(typed) + 1}


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


SUITE = Suite(
    name="commands",
    title="Daily tasks at the command line, from start to end, and the keys that a person types",
    measures={"time": Measure("s", LESS), "keys": Measure("")},
    ours=(SERVER, BOARD),
    references=(MPREMOTE,),
    run=run,
)
