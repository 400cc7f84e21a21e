"""Cuts the power of a board at a random moment of a deployment, and checks what it starts next.

    python -m tests.campaigns deploy --rounds 200 --seed 1

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
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from fastflight.app.local_board import PluggedBoard
from fastflight.cli.deployment import Deployment, Health
from fastflight.errors import FastFlightError
from fastflight_benchmark.simulated import SimulatedBoard
from tests.campaigns.engine import Campaign, Fault, Invariant

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


class Deploy(Campaign):
    name = "deploy"
    rounds = 200
    needed = ("cut",)

    def start(self) -> None:
        self._program = self.folder / "program"
        self._board = PoweredBoard(self.folder / "board")
        for each in (self._program, self._board.folder):
            each.mkdir()
        write_program(self._board.folder, 0)
        # The first deployment is not cut, and shows how long one takes.
        self._version, self._takes = 0, 1.0
        self._deploy(SECONDS)
        self.check(self.always())

    def carry_out(self, number: int, chance: random.Random) -> None:
        after = chance.uniform(0, self._takes)
        self.counts["cut"] += self.strike(Fault("power cut", "board", lambda: self._deploy(after)))

    def always(self) -> dict[str, Invariant]:
        return {"a start runs one version as a whole": self._starts}

    def _starts(self) -> Iterator[str]:
        """Start the board twice: after a trial, the second start runs the accepted version."""
        for start in ("first", "second"):
            accepted = self._board.accepted()
            allowed = {self._before, str(self._version)} if start == "first" else {accepted}
            numbers = self._board.boot()
            self.counts["starts"] += 1
            if len(set(numbers)) != 1 or len(numbers) != 4 or numbers[0] not in allowed:
                yield f"version {self._version}, in {self._step}: the {start} start ran {numbers}, not {allowed}"

    def _deploy(self, cut_after: float) -> bool:
        """Deploy the next version, and cut the power after so many seconds. Return whether it was cut."""
        self._version += 1
        write_program(self._program, self._version)
        self._before = self._board.accepted()
        self._step = STEPS[0]
        was_cut = threading.Event()

        def switch_off() -> None:
            was_cut.set()
            self._board.stop()

        cut = threading.Timer(cut_after, switch_off)
        with self._board, closing(PluggedBoard(self._board.path)) as plugged:
            deployment, target = Deployment(self._program, ()), plugged.board(interrupt=True)
            target.info()
            began = time.monotonic()
            cut.start()
            try:
                deployment.stage(target)
                self._step = STEPS[1]
                if not deployment.attempt(target, plugged.board(), Health("ready", False, SECONDS)):
                    self._step = STEPS[2]
                    deployment.accept(target)
                    self._step = STEPS[3]
            except FastFlightError:
                pass
            finally:
                cut.cancel()
                cut.join()
        self.counts[f"in {self._step}"] += was_cut.is_set()
        if not was_cut.is_set():
            self._takes = time.monotonic() - began
            if (self._step, self._board.accepted()) != (STEPS[3], str(self._version)):
                self.violate("a deployment succeeds", f"version {self._version}, without a cut: ended in {self._step}")
        return was_cut.is_set()


CAMPAIGN = Deploy
