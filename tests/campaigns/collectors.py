"""Cuts a board, or one of two computers that collect from it, at every step, and checks that each line was stored once.

    python -m tests.campaigns collectors

Two collectors have a folder each, and collect the log of one simulated board in this process. Each call to the board,
and each piece of a file that is read, is a step. For every step of the first collector, before and after the board has
done it, a round breaks the collector off there, and then does one of these:

- `again`: the first collector runs again, and then the second.
- `other`: the second runs, which is broken off itself at every step; then both run again.
- `hand-over`: the first never comes back. Its parts must not stay on the board.
- `swap`: another board takes the place of the board, under the same name, and later the first board comes back.
- `both`: the first is not broken off: the second collects everything in the middle of this step.

The program on the board appends lines all the time. At the end ten minutes pass, and the collectors run again, so that
what is left on a board is collected too. Then each line must be stored once, in one of the two folders, and no line may
be left on a board. Only after a hand-over may lines be stored twice: those of the part that the first collector had
stored and not yet removed from the board. Rounds come in a random order: a few of them are a sample.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from fastflight.app.local_board import LocalBoard, PluggedBoard
from fastflight.client.board import Board
from fastflight.client.collection import Collection
from fastflight.client.collector import ADOPT_SECONDS
from fastflight.errors import TransportClosed
from tests.campaigns.engine import Campaign, Fault, Invariant

LOG = "/log.csv"
# Lines that the program appends between two runs.
LINES = 12
AFTERMATHS = ("again", "other", "hand-over", "swap", "both")
MOMENTS = ("before", "after")
# No run that is broken off has more.
MOST_STEPS = 10


@dataclass(frozen=True, slots=True)
class Break:
    """Where a collector is broken off: before or after a step, counted from 1. 0: nowhere."""

    step: int = 0
    moment: str = ""


UNBROKEN = Break()
BREAKS = [Break(step, moment) for step in range(1, MOST_STEPS + 1) for moment in MOMENTS]
# What happens after the first is broken off, and where the second is.
TRIALS = [
    (after, first, second)
    for after in AFTERMATHS
    for first in BREAKS
    for second in (BREAKS if after == "other" else [UNBROKEN])
]


class Steps:
    """The board of one run. Calls `event` at one step: before or after the board has done it."""

    def __init__(self, board: LocalBoard, at: Break, event: Callable[[], None]) -> None:
        self.name = board.name
        self._board = board
        self._at = at
        self._event = event
        self.count = 0

    @contextmanager
    def _step(self) -> Iterator[None]:
        self.count += 1
        chosen = self.count == self._at.step
        if chosen and self._at.moment == "before":
            self._event()
        yield
        if chosen and self._at.moment == "after":
            self._event()

    def read(self, *args: Any, **keys: Any) -> Iterator[bytes]:
        for piece in list(self._board.read(*args, **keys)):  # so that the board is free for the other collector
            for half in (piece[: len(piece) // 2], piece[len(piece) // 2 :]):
                with self._step():
                    pass
                yield half

    def __getattr__(self, verb: str) -> Any:
        def call(*args: Any, **keys: Any) -> Any:
            with self._step():
                result = getattr(self._board, verb)(*args, **keys)
                return iter(list(result)) if verb == "exec" else result  # so that the board has done it

        return call


def cut() -> None:
    raise TransportClosed("the board was cut off")


class Trial:
    """The folders of a trial: two collectors, `a` and `b`, and the files of a board."""

    def __init__(self, folder: Path, board: LocalBoard, files: Path) -> None:
        self._folder = folder
        self._board = board
        self._files = files
        self._now = 0.0
        self._number = 0
        for each in files.glob("log*"):
            each.unlink()
        self.log()

    def log(self) -> None:
        """Append lines, as the program does."""
        with (self._files / LOG[1:]).open("a") as file:
            for number in range(self._number + 1, self._number + 1 + LINES):
                file.write(f"{number},21.5\n")
        self._number += LINES

    def run(self, name: str, at: Break = UNBROKEN, event: Callable[[], None] = cut) -> bool:
        """Run a collector until it ends, or is cut off. Return whether it got as far as that step."""
        steps = Steps(self._board, at, event)
        try:
            Collection(cast(Board, steps), LOG, self._folder / name, clock=lambda: self._now).run()
        except TransportClosed:
            pass
        assert steps.count <= MOST_STEPS, f"{steps.count} steps, which are not all tried"
        return steps.count >= at.step

    def other(self) -> None:
        """Run the second collector in the middle of a run of the first."""
        self.run("b")

    def swap(self) -> None:
        """Exchange the files of the board for those of another one."""
        away, spare = self._folder / "away", self._folder / "spare"
        for folder in (away, spare):
            folder.mkdir(exist_ok=True)
        for source, target in ((self._files, spare), (away, self._files), (spare, away)):
            for each in source.glob("log*"):
                shutil.move(each, target / each.name)

    def finish(self, names: str) -> None:
        """Ten minutes pass, twice: the collectors see what has been left, and collect it."""
        for _ in range(2):
            for name in names:
                self.run(name)
            self._now += ADOPT_SECONDS
        for name in names:
            self.run(name)

    def stored(self) -> list[Counter[str]]:
        """Return the lines in each stored part."""
        parts = [path for name in "ab" for path in sorted((self._folder / name).glob("*.csv"))]
        return [Counter(path.read_text().splitlines()) for path in parts]

    def lost(self) -> Iterator[str]:
        """Yield lines that are not stored, or are left on the board."""
        if lines := self._written - set(sum(self.stored(), Counter())):
            yield f"{len(lines)} lines are stored nowhere"
        if left := sorted(path.name for path in self._files.glob("log*")):
            yield f"on the board are left {', '.join(left)}"

    def twice(self, *, may_repeat: bool) -> Iterator[str]:
        """Yield lines that are stored twice. `may_repeat`: those of one part, stored and not removed, may be."""
        parts = self.stored()
        counts = sum(parts, Counter())
        if others := set(counts) - self._written:
            yield f"{len(others)} lines are stored that nobody wrote"
        is_one_part = may_repeat and sum(parts.count(part) > 1 for part in parts) == 2
        if (most := max(counts.values(), default=0)) > 1 and not is_one_part:
            yield f"lines are stored up to {most} times"

    @property
    def _written(self) -> set[str]:
        return {f"{number},21.5" for number in range(1, self._number + 1)}


class Collectors(Campaign):
    name = "collectors"
    needed = ("steps",)
    rounds = len(TRIALS)

    def start(self) -> None:
        files = self.folder / "board"
        files.mkdir()
        plugged = self.stack.enter_context(closing(PluggedBoard(f"sim:?files={files}&telemetry=0")))
        self._new = partial(Trial, board=plugged.board(), files=files)
        self._trials = random.Random(self.asked.seed).sample(TRIALS, len(TRIALS))

    def carry_out(self, number: int, chance: random.Random) -> None:
        self._after, first, second = self._trials[number]
        self._trial = each = self._new(self.folder / str(number))
        cut_off = partial(each.run, "a", first, each.other if self._after == "both" else cut)
        self.counts["steps"] += self.strike(Fault(self._after, first.moment, cut_off))
        each.log()
        if self._after == "other":
            self.strike(Fault("second broken off", second.moment, partial(each.run, "b", second)))
        if self._after == "swap":
            each.swap()
            each.log()
            each.run("a")
            each.swap()
        each.finish("b" if self._after == "hand-over" else "ab")

    def always(self) -> dict[str, Invariant]:
        return {
            "no line is lost": self._trial.lost,
            "no line is stored twice": partial(self._trial.twice, may_repeat=self._after == "hand-over"),
        }


CAMPAIGN = Collectors
