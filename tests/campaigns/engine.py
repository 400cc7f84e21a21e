"""The engine of all campaigns: rounds of work, faults that interrupt it, and invariants that must hold.

A campaign starts what it needs. The engine carries out its rounds, each with random numbers that depend on the seed and
the number of the round only. It checks the invariants `always` after each round and those `at_end` after the last one,
looks for errors in the logs of its programs, and makes the report.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from fastflight.errors import FastFlightError
from tests.campaigns.faulting.program import Program

# Returns what is violated, a text each.
Invariant = Callable[[], Iterable[str]]
Option = tuple[str, dict[str, Any]]
# Of a violation, so much is reported.
SHOWN_CHARACTERS = 3_000
PROGRESS_SECONDS = 20.0


def option(name: str, default: Any, help: str | None = None, **keys: Any) -> Option:
    """Return an option of a command line. Its type is that of `default`."""
    kind = {} if default is None or "type" in keys or "action" in keys else {"type": type(default)}
    return name, {"default": default, "help": help, **kind, **keys}


@dataclass(slots=True)
class Fault:
    """A fault that is ready to strike at one place.

    `begin` strikes, or arms it for a place in the work; `end` mends it. It has struck unless one of them returns False.
    It lasts as long as the work that it interrupts or, without such work, `seconds`.
    """

    kind: str
    where: str
    begin: Callable[[], object]
    end: Callable[[], object] = lambda: None
    seconds: float = 0.0
    # What it is in all detail.
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind}, {self.where}"

    def strike(self, work: Callable[[], object] | None = None) -> bool:
        """Begin the fault, do the work or wait, and end the fault. Return whether it struck."""
        begun = ended = False
        try:
            begun = self.begin() is not False
            (work or partial(time.sleep, self.seconds))()
        finally:
            ended = self.end() is not False
        return begun and ended


@dataclass(slots=True)
class Report:
    """What a campaign did and found. `counts` has figures of the campaign's own, such as acknowledged rows."""

    campaign: str
    seed: int
    rounds: int = 0
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    struck: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    # How often each invariant was checked.
    checked: Counter[str] = field(default_factory=Counter)
    violated: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not self.violated

    def text(self) -> str:
        lines: list[str] = []
        for title in ("faults", "struck", "counts", "checked"):
            lines += [title, *(f"  {key}: {count:,}" for key, count in sorted(getattr(self, title).items()))]
        end = "clean" if self.clean else "NOT CLEAN"
        return "\n".join([*lines, *self.violated, f"{self.campaign}, seed {self.seed}: {self.rounds} rounds, {end}"])


class Campaign(ABC):
    """A campaign in an empty folder, while the context lasts. Subclasses start things on `stack`."""

    name: ClassVar[str]
    rounds: ClassVar[int] = 20
    seconds: ClassVar[float] = math.inf
    options: ClassVar[tuple[Option, ...]] = ()
    # Figures that must not be 0 in the end: a campaign without any effect proves nothing.
    needed: ClassVar[tuple[str, ...]] = ("struck",)

    def __init__(self, folder: Path, asked: argparse.Namespace) -> None:
        self.folder, self.asked = folder, asked
        self.report = Report(self.name, asked.seed)
        self.counts = self.report.counts
        self.stack = ExitStack()
        # Their logs are searched for errors at the end.
        self.programs: list[Program] = []
        self._round = 0

    def __enter__(self) -> Self:
        with self.stack:
            self.start()
            self.stack = self.stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stack.close()

    @abstractmethod
    def start(self) -> None:
        """Start what the campaign needs."""

    @abstractmethod
    def carry_out(self, number: int, chance: random.Random) -> None:
        """Carry out a round: choose faults, and `strike`."""

    def finish(self) -> None:  # noqa: B027 - most have no work that goes on
        """End the work, before the invariants at the end are checked."""

    def always(self) -> Mapping[str, Invariant]:
        """Return what must hold after each round."""
        return {}

    def at_end(self) -> Mapping[str, Invariant]:
        """Return what must hold after the last round."""
        return {}

    def strike(self, fault: Fault, work: Callable[[], object] | None = None) -> bool:
        """Carry out a fault, and count it. One that cannot be begun or mended is a violation."""
        self.report.faults[str(fault)] += 1
        try:
            struck = fault.strike(work)
        except (AssertionError, FastFlightError, OSError) as error:
            self.violate(
                "a fault is mended", f"{fault} {fault.detail}: {''.join(traceback.format_exception_only(error))}"
            )
            return False
        self.report.struck[str(fault)] += struck
        self.counts["struck"] += struck
        return struck

    def violate(self, invariant: str, found: str) -> None:
        """Report what is violated."""
        text = f"round {self._round}: {invariant}: {found}"[:SHOWN_CHARACTERS]
        self.report.violated.append(text)
        say(text)

    def at_most(self, name: str, count: int) -> None:
        """Keep the largest count of this name."""
        self.counts[name] = max(self.counts[name], count)

    def check(self, invariants: Mapping[str, Invariant]) -> None:
        for name, invariant in invariants.items():
            self.report.checked[name] += 1
            for found in invariant():
                self.violate(name, found)

    def run(self) -> Report:
        """Carry out the rounds and check. Ctrl-C and SIGTERM end the rounds early."""
        began = shown = time.monotonic()
        try:
            for number in self.asked.only or range(self.asked.rounds):
                self._round = number
                if (now := time.monotonic()) - began > self.asked.seconds:
                    break
                if now - shown > PROGRESS_SECONDS:
                    shown = now
                    say(f"round {self._round}, {len(self.report.violated)} violations, {dict(self.counts)}")
                self.carry_out(number, random.Random(f"{self.asked.seed} {number}"))
                self.report.rounds += 1
                self.check(self.always())
        except KeyboardInterrupt:
            say("ended early: what was done until now is checked")
        finally:
            self.finish()
        self.check({
            **self.at_end(),
            "no program ended by itself, and no log has a traceback": self._complaints,
            "the campaign had an effect": lambda: (f"no {name}" for name in self.needed if not self.counts[name]),
        })  # fmt: skip
        self.report.seconds = round(time.monotonic() - began, 1)
        return self.report

    def _complaints(self) -> Iterable[str]:
        return (f"{program.name}: {each}" for program in self.programs for each in program.complaints())


class Worker(threading.Thread):
    """Repeats `work` until `leave`. `work` returns what it did, or raises what ended it too early.

    `ended` counts the ends: `whole`, or the code of a documented error. All other errors are `flaws`.
    """

    # Work that takes longer hangs.
    hung_seconds = 180.0

    def __init__(self, name: str, work: Callable[[], object], pause: Callable[[], float]) -> None:
        super().__init__(name=name, daemon=True)  # one that hangs can only be left behind
        self._work, self._pause = work, pause
        self._over = threading.Event()
        self.ended: Counter[str] = Counter()
        self.flaws: list[str] = []

    def leave(self) -> None:
        self._over.set()

    def settle(self) -> None:
        """Wait for its end. A worker that hangs is a flaw."""
        self.join(self.hung_seconds)
        if self.is_alive():
            self.flaws.append(f"{self.name} never ended")

    def run(self) -> None:
        while not self._over.wait(self._pause()):
            self.once()

    def once(self, work: Callable[[], object] | None = None) -> None:
        """Do the work, or other `work`, once, and count how it ended."""
        began = time.monotonic()
        try:
            (work or self._work)()
        except Exception as error:
            self.ended[code := self.accepts(error)] += 1
            if not code:
                self.flaws.append(f"{self.name}: {''.join(traceback.format_exception_only(error))}")
        else:
            self.ended["whole"] += 1
        if (seconds := time.monotonic() - began) > self.hung_seconds:
            self.flaws.append(f"{self.name} took {seconds:.0f} s")

    def accepts(self, error: Exception) -> str:
        """Return the code of an error that may end the work, or an empty text."""
        return code_of(error)


def settled(workers: Iterable[Worker], counts: Counter[str]) -> list[str]:
    """End the workers, all at once, and count how their work ended. Return their flaws."""
    all_of_them = list(workers)
    for each in all_of_them:
        each.leave()
    for each in all_of_them:
        each.settle()
        counts.update({f"work ended: {code or 'without a code'}": count for code, count in each.ended.items()})
    return [flaw for each in all_of_them for flaw in each.flaws]


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


def code_of(error: BaseException) -> str:
    """Return the code of a documented error; empty for all others, and for the root class: that one is unforeseen."""
    if isinstance(error, FastFlightError) and error.code != FastFlightError.code:
        return error.code
    return ""


def write(report: Report, output: Path | None) -> None:
    """Print the report and, with `output`, write it as JSON."""
    say(report.text())
    if output is not None:
        # Not `asdict`, which makes counters of pairs.
        found = {each.name: getattr(report, each.name) for each in fields(report)}
        output.write_text(json.dumps({**found, "clean": report.clean}, indent=1) + "\n", encoding="utf-8")
