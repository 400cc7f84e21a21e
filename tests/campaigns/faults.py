"""Injects faults at every hop while files are copied, sessions are read and recordings are written.

    python -m tests.campaigns.faults --faults 1000 --seed 1
    python -m tests.campaigns.faults --faults 1000 --tls              # TLS and a token at the server's ports
    python -m tests.campaigns.faults --faults 40 --line socket        # only devices behind a socket
    python -m tests.campaigns.faults --only 17 --line serial          # repeat one fault by its number

A stage for each line runs at the same time, and carries out its share of the faults, one after another. It ends by
itself, after some minutes for each hundred faults. Exit code 1: an acknowledged byte or row is missing or wrong, an
error has no code of ours, something never ended, or something could not be used again without help.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
import threading
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from pathlib import Path

from tests.campaigns import engine
from tests.campaigns.faulting.stage import LINES, Stage
from tests.campaigns.faulting.trial import BAD, FaultOutcome, FaultTrials, warm_up

# A share of all faults for each stage.
SHARES = {"socket": 0.4, "rfc2217": 0.3, "serial": 0.3}
# After so many faults a stage is warm: what is held then is what the end is compared with.
WARM_FAULTS = 8
# gRPC's threads and pollers come and go.
SLACK_DESCRIPTORS, SLACK_THREADS = 12, 16
SETTLE_SECONDS = 20.0
# Of what went wrong, so much is shown at once.
SHOWN_CHARACTERS = 3_000


@dataclass(slots=True)
class FaultsOutcome:
    """The faults: how many there were and had an effect, by work and by place, and how the work ended.

    `interrupted`: after how many of them a board had to be interrupted before the same work succeeded again.
    `usable_seconds`: the median and the longest time until the same work succeeded again.
    """

    acknowledged_rows: int = 0
    faults: int = 0
    struck: int = 0
    interrupted: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    works: dict[str, Counter[str]] = field(default_factory=dict)
    places: dict[str, Counter[str]] = field(default_factory=dict)
    usable_seconds: tuple[float, float] = (0.0, 0.0)
    bad: list[str] = field(default_factory=list)
    flaws: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not self.bad and not self.flaws and self.faults > 0

    def add(self, each: FaultOutcome) -> None:
        """Count a fault."""
        self.faults += 1
        self.struck += each.struck
        self.interrupted += each.interrupted
        self.ended[each.ended] += 1
        self.codes[each.code] += bool(each.code)
        for group, key in ((self.works, each.work), (self.places, f"{each.hop}, {each.kind}")):
            group.setdefault(key, Counter()).update(["faults", each.ended, *["struck"] * each.struck])
        if each.ended in BAD:
            text = f"{each.line} {each.number}, {each.spec}, {each.work}: {each.ended}\n{each.reason}"
            self.bad.append(text[:SHOWN_CHARACTERS])
            engine.say(self.bad[-1])
        if self.faults % 25 == 0:
            engine.say(f"{self.faults} faults, {len(self.bad)} bad")


class Stages:
    """The stages of a campaign, which run at the same time."""

    def __init__(self, folder: Path, asked: argparse.Namespace) -> None:
        self.outcome = FaultsOutcome()
        self.rows: list[FaultOutcome] = []
        self._folder, self._asked = folder, asked
        self._deadline = time.monotonic() + 60 * asked.minutes
        self._lock = threading.Lock()

    def run(self) -> None:
        """Run all stages. One that breaks down is a flaw; its outcomes until then count."""
        warm_up()
        lines = self._asked.line or list(LINES)
        whole = sum(SHARES[line] for line in lines)
        with ThreadPoolExecutor(len(lines)) as threads:
            playing = []
            try:
                for line in lines:
                    numbers = self._asked.only or range(max(1, round(self._asked.faults * SHARES[line] / whole)))
                    playing.append(threads.submit(self._play, line, numbers))
                for line, done in zip(lines, playing, strict=True):
                    if (error := done.exception()) is not None:
                        text = "".join(traceback.format_exception(error))
                        self.outcome.flaws.append(f"{line}: the stage broke down: {text}")
            except BaseException:
                # Interrupted: each stage ends its fault, and itself.
                self._deadline = -math.inf
                raise
        if self.rows:
            usable = [each.usable_seconds for each in self.rows]
            self.outcome.usable_seconds = statistics.median(usable), max(usable)

    def _play(self, line: str, numbers: Sequence[int]) -> None:
        folder = self._folder / line
        folder.mkdir()
        with Stage(folder, line, tls=self._asked.tls, seed=self._asked.seed) as stage:
            trials = FaultTrials(stage, self._asked.seed)
            before: dict[int, tuple[int, int]] = {}
            count = 0
            for count, number in enumerate(takewhile(lambda _: time.monotonic() < self._deadline, numbers)):
                found = trials.carry_out(number)
                with self._lock:
                    self.rows.append(found)
                    self.outcome.add(found)
                if count >= WARM_FAULTS:
                    before.setdefault(stage.server.pid, stage.server.held())
            for missing in stage.missing:
                engine.say(f"{line}: not placed: {missing}")
            flaws = trials.finish()
            if count >= WARM_FAULTS and not trials.acknowledged:
                flaws.append("no row was acknowledged, and so none looked for")
            if stage.server.pid in before:
                flaws += _leaks(stage, *before[stage.server.pid])
            with self._lock:
                self.outcome.flaws += [f"{line}: {flaw}" for flaw in flaws]
                self.outcome.acknowledged_rows += trials.acknowledged


def _leaks(stage: Stage, descriptors: int, threads: int) -> list[str]:
    """Return what the server holds more than before, when all clients have left."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        now = stage.server.held()
        if now[0] <= descriptors + SLACK_DESCRIPTORS and now[1] <= threads + SLACK_THREADS:
            return []
        if time.monotonic() > deadline:
            return [f"{now[0]} descriptors and {now[1]} threads, before {descriptors} and {threads}"]
        time.sleep(0.2)


def campaign(folder: Path, asked: argparse.Namespace) -> FaultsOutcome:
    """Run all stages. The CSV is written here, and not the outcome as JSON."""
    stages = Stages(folder, asked)
    stages.run()
    if asked.output is not None:
        with asked.output.open("w", newline="") as file:
            rows = csv.DictWriter(file, list(FaultOutcome.__dataclass_fields__))
            rows.writeheader()
            rows.writerows(map(asdict, stages.rows))
        asked.output = None
    return stages.outcome


if __name__ == "__main__":
    engine.command(
        __doc__,
        campaign,
        engine.option("--faults", 100, "how many, over all lines"),
        engine.option("--line", None, "repeatable; default: all", choices=LINES, action="append"),
        engine.option(
            "--only", None, "only the fault of this number on each line; repeatable", type=int, action="append"
        ),
        engine.option(
            "--tls", False, "TLS and a token at the server's ports, where bits flip, too", action="store_true"
        ),
        engine.option("--minutes", math.inf, "no fault begins after so many"),
        engine.option("--output", None, "a CSV with a row for each fault", type=Path),
        seed=1,
    )
