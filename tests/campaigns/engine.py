"""The engine of all campaigns: work that is repeated, faults that interrupt it, and invariants that must hold.

A campaign defines its work, its faults and its invariants. Here are the parts that campaigns have in common: `command`
is the command line, `Fault` and `Strike` begin and end a fault, `Worker` repeats work in a thread, and `code_of` tells
documented errors from others.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Generic, NoReturn, Protocol, TypeVar

from fastflight.errors import FastFlightError
from fastflight_benchmark import ending
from tests.support.targets import TargetMissing

S = TypeVar("S")


class Outcome(Protocol):
    """The result of a campaign: a dataclass that is written as JSON. `clean`: all invariants held."""

    @property
    def clean(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a campaign that has printed and written its own report."""

    clean: bool


# Carries out a campaign in an empty folder. `seed` is among the arguments.
Campaign = Callable[[Path, argparse.Namespace], Outcome]


def option(name: str, default: Any, help: str | None = None, **keys: Any) -> tuple[str, dict[str, Any]]:
    """Return an option of a command line. Its type is that of `default`."""
    kind = {} if default is None or "type" in keys or "action" in keys else {"type": type(default)}
    return name, {"default": default, "help": help, **kind, **keys}


def command(
    doc: str | None, campaign: Campaign, *options: tuple[str, dict[str, Any]], seed: int | None = None
) -> NoReturn:
    """Run a campaign as a command: its options, and `--seed` and `--output`. The exit code is 1 unless it is clean.

    The outcome is printed, and written to the file that `--output` names. A campaign with a `Verdict` writes its own.
    """
    ending.like_ctrl_c()
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, keys in options:
        parser.add_argument(name, **keys)
    parser.add_argument("--seed", type=int, default=seed, help="default: a new one" if seed is None else str(seed))
    if not any(name == "--output" for name, _ in options):
        parser.add_argument("--output", type=Path, help="a JSON file for the outcome")
    arguments = parser.parse_args()
    if arguments.seed is None:
        arguments.seed = random.SystemRandom().randrange(2**32)
    say(f"seed {arguments.seed}")
    try:
        with tempfile.TemporaryDirectory(prefix="fastflight-campaign-") as folder:
            outcome = campaign(Path(folder), arguments)
    except TargetMissing as error:
        say(str(error))
        sys.exit(1)
    text = json.dumps({"seed": arguments.seed, **_fields_of(outcome)}, indent=1, default=_fields_of)
    say(text)
    if arguments.output is not None and not isinstance(outcome, Verdict):
        arguments.output.write_text(text + "\n", encoding="utf-8")
    say("clean" if outcome.clean else "NOT CLEAN")
    sys.exit(0 if outcome.clean else 1)


def _fields_of(found: Any) -> dict[str, Any]:
    # Not `asdict`, which makes counters of pairs.
    return {each.name: getattr(found, each.name) for each in fields(found)}


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


def code_of(error: BaseException) -> str:
    """Return the code of a documented error; empty for all others, and for the root class: that one is unforeseen."""
    if isinstance(error, FastFlightError) and error.code != FastFlightError.code:
        return error.code
    return ""


@dataclass(frozen=True, slots=True)
class Fault(Generic[S]):
    """A fault at one of `targets` of a stage: `begin`, and after a time between the two of `seconds` `mend`."""

    targets: Sequence[str]
    begin: Callable[[S, str], object]
    mend: Callable[[S, str], object] = lambda stage, target: None
    seconds: tuple[float, float] = (0.0, 0.0)


class Strike(threading.Thread, Generic[S]):
    """A fault with a target and a duration, drawn by `chance`. As a thread it keeps an error as `flaw`."""

    def __init__(self, stage: S, kind: str, fault: Fault[S], chance: random.Random) -> None:
        super().__init__(name=kind)
        self._stage, self._fault, self.kind = stage, fault, kind
        self.target = chance.choice(fault.targets)
        self.planned = chance.uniform(*fault.seconds)
        self.what = f"{kind}: {self.target}"
        self.seconds, self.flaw = 0.0, ""

    def carry_out(self) -> None:
        """Begin the fault, wait, and mend it."""
        try:
            self._fault.begin(self._stage, self.target)
            time.sleep(self.planned)
        finally:
            self._fault.mend(self._stage, self.target)

    def run(self) -> None:
        began = time.monotonic()
        try:
            self.carry_out()
        except (AssertionError, FastFlightError, OSError) as error:
            self.flaw = f"{self.what}: {error}"
        self.seconds = time.monotonic() - began


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
