"""Cuts a board, or one of two computers that collect from it, at every step, and checks that each line was stored once.

    python -m tests.campaigns.collectors

Two collectors have a folder each, and collect the log of one simulated board in this process. Each call to the board,
and each piece of a file that is read, is a step. For every step of the first collector, before and after the board has
done it, a trial breaks the collector off there, and then does one of these:

- `again`: the first collector runs again, and then the second.
- `other`: the second runs, which is broken off itself at every step; then both run again.
- `hand-over`: the first never comes back. Its parts must not stay on the board.
- `swap`: another board takes the place of the board, under the same name, and later the first board comes back.
- `both`: the first is not broken off: the second collects everything in the middle of this step.

The program on the board appends lines all the time. At the end ten minutes pass, and the collectors run again, so that
what is left on a board is collected too. Then each line must be stored once, in one of the two folders, and no line may
be left on a board. Only after a hand-over may lines be stored twice: those of the part that the first collector had
stored and not yet removed from the board. Exit code 1: a line is missing, or comes twice.
"""

from __future__ import annotations

import itertools
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from fastflight.app.local_board import LocalBoard, PluggedBoard
from fastflight.client.board import Board
from fastflight.client.collection import Collection
from fastflight.client.collector import ADOPT_SECONDS
from fastflight.errors import TransportClosed
from tests.campaigns import engine

LOG = "/log.csv"
# Lines that the program appends between two runs.
LINES = 12
AFTERMATHS = ("again", "other", "hand-over", "swap", "both")
MOMENTS = ("before", "after")


class Steps:
    """The board of one run. At step `at`, counted from 1, calls `event`: before or after the board has done it."""

    def __init__(self, board: LocalBoard, at: int, moment: str, event: Callable[[], None]) -> None:
        self.name = board.name
        self._board = board
        self._at = at
        self._moment = moment
        self._event = event
        self.count = 0

    @contextmanager
    def _step(self) -> Iterator[None]:
        self.count += 1
        chosen = self.count == self._at
        if chosen and self._moment == "before":
            self._event()
        yield
        if chosen and self._moment == "after":
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


@dataclass(slots=True)
class CollectorsOutcome:
    """What the campaign found. `lost` and `twice` name trials with such lines."""

    trials: int = 0
    lines: int = 0
    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return self.trials > 0 and not (self.lost or self.twice)


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

    def run(self, name: str, at: int = 0, moment: str = "", event: Callable[[], None] = cut) -> bool:
        """Run a collector until it ends, or is cut off. Return whether it got as far as step `at`."""
        steps = Steps(self._board, at, moment, event)
        try:
            Collection(cast(Board, steps), LOG, self._folder / name, clock=lambda: self._now).run()
        except TransportClosed:
            pass
        return steps.count >= at

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

    def check(self, title: str, outcome: CollectorsOutcome) -> None:
        """Count the lines that are missing, and those that are stored twice."""
        written = {f"{number},21.5" for number in range(1, self._number + 1)}
        parts = self.stored()
        counts = sum(parts, Counter())
        outcome.trials += 1
        outcome.lines += len(written)
        if written - set(counts) or list(self._files.glob("log*")):
            outcome.lost.append(title)
        # The first collector had stored this part, and could not say so.
        same = sum(parts.count(part) > 1 for part in parts if title.startswith("hand-over"))
        if set(counts) - written or (max(counts.values(), default=0) > 1 and same != 2):
            outcome.twice.append(title)


def trial(new: Callable[[], Trial], after: str, at: int, moment: str, outcome: CollectorsOutcome, every: int) -> bool:
    """Make the trials of one step of the first collector. Return whether it has that many steps."""
    for other in itertools.count(1, every):
        for other_moment in MOMENTS if after == "other" else ("",):
            each = new()
            reached = each.run("a", at, moment, each.other if after == "both" else cut)
            each.log()
            more = after == "other" and each.run("b", other, other_moment)
            if after == "swap":
                each.swap()
                each.log()
                each.run("a")
                each.swap()
            each.finish("b" if after == "hand-over" else "ab")
            each.check(f"{after}: {moment} step {at}, {other_moment} step {other}", outcome)
        if not more:
            return reached
    raise AssertionError


def run(folder: Path, every: int = 1, aftermaths: tuple[str, ...] = AFTERMATHS) -> CollectorsOutcome:
    """Make all trials; with `every`, only those of each so many steps."""
    outcome, numbers = CollectorsOutcome(), itertools.count()
    files = folder / "board"
    files.mkdir()
    with closing(PluggedBoard(f"sim:?files={files}&telemetry=0")) as plugged:
        board = plugged.board()
        for after, moment in itertools.product(aftermaths, MOMENTS):
            for at in itertools.count(1, every):
                if not trial(
                    lambda: Trial(folder / str(next(numbers)), board, files), after, at, moment, outcome, every
                ):
                    break
    return outcome


if __name__ == "__main__":
    engine.command(
        __doc__, lambda folder, asked: run(folder, asked.every), engine.option("--every", 1, "only each so many steps")
    )
