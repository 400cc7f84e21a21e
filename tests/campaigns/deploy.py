"""Cuts the power of a board at a random moment of a deployment, and checks what it starts next.

    python -m tests.campaigns.deploy --cuts 200 --seed 1

The board is a simulated one in a process of its own, which is killed. Its program has four files with a version number
each, and writes the four numbers to a log at each start. After a cut the board is started twice. Exit code 1 means: a
start wrote different numbers or none, or a version that was neither the accepted one nor the one on trial; or no cut
came within a deployment. The next deployment then has to cope with what the cut has left.

A killed process loses nothing that its system calls have stored, so this does not show what a flash chip loses.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from fastflight.app.local_board import PluggedBoard
from fastflight.cli.deployment import Deployment, Health
from fastflight.errors import FastFlightError
from fastflight_benchmark.simulated import SimulatedBoard
from tests.campaigns import engine

PARTS = ("part1", "part2", "part3")
MAIN = """\
V = {version}
import {parts}
with open('/boots.log', 'a') as log:
    log.write('%d %d %d %d\\n' % (V, part1.V, part2.V, part3.V))
print('ready', V)
"""
# For a board to start on a busy computer, and for its program to print.
SECONDS = 30.0
# How a deployment ended, by the step in which it was.
STEPS = ("stage", "attempt", "accept", "complete")


@dataclass(slots=True)
class DeployOutcome:
    """How many deployments ended in each step, and which starts or deployments were wrong."""

    steps: Counter[str] = field(default_factory=Counter)
    starts: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not self.wrong and any(self.steps[step] for step in STEPS)


def write_program(folder: Path, version: int) -> None:
    """Write the program with this version number."""
    (folder / "main.py").write_text(MAIN.format(version=version, parts=", ".join(PARTS)))
    for part in PARTS:
        (folder / f"{part}.py").write_text(f"V = {version}\n" + f"# {part}\n" * 20)


class PoweredBoard(SimulatedBoard):
    """A board with this program and a log of its starts. The context switches it on."""

    @property
    def _log(self) -> Path:
        return self.folder / "boots.log"

    def boot(self) -> list[str]:
        """Switch it on until its program has started, and off. Return the numbers that the program wrote."""
        before = self.starts()
        with self:
            deadline = time.monotonic() + SECONDS
            while len(now := self.starts()) == len(before) and time.monotonic() < deadline:
                time.sleep(0.01)
        return now[len(before)] if len(now) > len(before) else []

    def starts(self) -> list[list[str]]:
        """Return the numbers of each start: the complete lines of the log."""
        text = self._log.read_text() if self._log.exists() else ""
        return [line.split() for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def accepted(self) -> str:
        """Return the version that a start without a trial has to run."""
        numbers = [int(path.name.partition("-")[2]) for path in self.folder.glob("deploy/accepted-*")]
        main = self.folder / f"deploy/{max(numbers)}/main.py" if numbers else self.folder / "deploy/before.py"
        first = (main if main.exists() else self.folder / "main.py").read_text().splitlines()[0]
        return first.removeprefix("V = ")


def deployed(board: PoweredBoard, program: Path, cut_after: float | None) -> tuple[str, bool, float]:
    """Deploy, and cut the power after so many seconds. Return the last step, whether it was cut, and the time taken."""
    step, began = STEPS[0], time.monotonic()
    with board:
        was_cut = threading.Event()

        def switch_off() -> None:
            was_cut.set()
            board.stop()

        cut = threading.Timer(SECONDS if cut_after is None else cut_after, switch_off)
        with closing(PluggedBoard(board.path)) as plugged:
            deployment, target = Deployment(program, ()), plugged.board(interrupt=True)
            target.info()
            began = time.monotonic()
            cut.start()
            try:
                deployment.stage(target)
                step = STEPS[1]
                if not deployment.attempt(target, plugged.board(), Health("ready", False, SECONDS)):
                    step = STEPS[2]
                    deployment.accept(target)
                    step = STEPS[3]
            except FastFlightError:
                pass
            finally:
                cut.cancel()
                cut.join()
        return step, was_cut.is_set(), time.monotonic() - began


def campaign(folder: Path, cuts: int, seed: int) -> DeployOutcome:
    """Deploy `cuts` versions, each with a cut."""
    chance, outcome = random.Random(seed), DeployOutcome()
    program = folder / "program"
    board = PoweredBoard(folder / "board")
    for each in (program, board.folder):
        each.mkdir()
    write_program(board.folder, 0)
    takes = 1.0
    for version in range(1, cuts + 2):
        write_program(program, version)
        before = board.accepted()
        # The first one is not cut, and shows how long a deployment takes.
        step, was_cut, seconds = deployed(board, program, None if version == 1 else chance.uniform(0, takes))
        if not was_cut:
            takes = seconds
        if version > 1:
            outcome.steps[step if was_cut else "not cut"] += 1
        if not was_cut and (step, board.accepted()) != (STEPS[3], str(version)):
            outcome.wrong.append(f"version {version}, without a cut: ended in {step}")
        for start in ("first", "second"):
            after = board.accepted()
            allowed = {before, str(version)} if start == "first" else {after}
            numbers = board.boot()
            outcome.starts += 1
            if len(set(numbers)) != 1 or len(numbers) != 4 or numbers[0] not in allowed:
                outcome.wrong.append(
                    f"version {version}, cut in {step}: the {start} start ran {numbers}, not {allowed}"
                )
    return outcome


if __name__ == "__main__":
    engine.command(
        __doc__,
        lambda folder, asked: campaign(folder, asked.cuts, asked.seed),
        engine.option("--cuts", 200, "how many deployments are cut"),
        seed=1,
    )
