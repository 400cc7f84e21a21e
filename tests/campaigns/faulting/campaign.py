"""Runs all stages at once. Each carries out its share of the faults, one after another."""

from __future__ import annotations

import math
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from pathlib import Path

from tests.campaigns.faulting.stage import LINES, Stage
from tests.campaigns.faulting.trial import BAD, FaultOutcome, FaultTrials, warm_up

# Any fixed number: a campaign that cannot be repeated finds nothing that can be mended.
SEED = 1
# A share of all faults for each stage.
SHARES = {"socket": 0.31, "rfc2217": 0.23, "serial": 0.23, "exec": 0.23}
# After so many faults a stage is cold still: what is held then is what the end is compared with.
WARM_FAULTS = 8
# gRPC's threads and pollers come and go.
SLACK_DESCRIPTORS, SLACK_THREADS = 12, 16
SETTLE_SECONDS = 20.0
# Of what went wrong, so much is shown at once.
SHOWN_CHARACTERS = 3_000


class Campaign:
    """`lines`: which stages; all of them by default. `tls`: guarded by TLS and a token.

    `progress` is given a line of text now and then. After `seconds` no fault begins any more.
    """

    def __init__(
        self,
        folder: Path,
        seed: int,
        lines: Sequence[str] | None,
        *,
        progress: Callable[[str], None],
        tls: bool = False,
        seconds: float = math.inf,
    ) -> None:
        self._folder = folder
        self._seed = seed
        self._lines = lines or list(LINES)
        self._progress = progress
        self._tls = tls
        self._deadline = time.monotonic() + seconds
        self._lock = threading.Lock()
        self.outcomes: list[FaultOutcome] = []
        self.flaws: list[str] = []
        self.acknowledged = 0

    def run(self, faults: int, only: Sequence[int] | None = None) -> tuple[list[FaultOutcome], list[str]]:
        """Carry out so many faults, or those numbers on each stage: what came of each, and what is wrong in all.

        A stage that breaks down is a flaw; what came of the others, and of it until then, counts.
        """
        warm_up()
        whole = sum(SHARES[line] for line in self._lines)
        with ThreadPoolExecutor(len(self._lines)) as threads:
            playing = []
            try:
                for line in self._lines:
                    numbers = only or range(max(1, round(faults * SHARES[line] / whole)))
                    playing.append(threads.submit(self._play, line, numbers))
                for line, done in zip(self._lines, playing, strict=True):
                    if (error := done.exception()) is not None:
                        self.flaws.append(f"{line}: the stage broke down: {''.join(traceback.format_exception(error))}")
            except BaseException:
                # Interrupted: each stage ends what it is about, and itself.
                self._deadline = -math.inf
                raise
        return self.outcomes, self.flaws

    def _play(self, line: str, numbers: Sequence[int]) -> None:
        folder = self._folder / line
        folder.mkdir()
        with Stage(folder, line, tls=self._tls, seed=self._seed) as stage:
            ours = FaultTrials(stage, self._seed)
            before: dict[int, tuple[int, int]] = {}
            count = 0
            for count, number in enumerate(takewhile(self._has_time, numbers)):
                self._came(ours.carry_out(number))
                if count >= WARM_FAULTS:
                    before.setdefault(stage.server.pid, stage.held())
            for missing in stage.missing:
                self._progress(f"{line}: not placed: {missing}")
            flaws = [f"{line}: {flaw}" for flaw in ours.finish()]
            if count >= WARM_FAULTS and not ours.acknowledged:
                flaws.append(f"{line}: no row was acknowledged, and so none looked for")
            if stage.server.pid in before:
                flaws += [f"{line}: {leak}" for leak in _leaks(stage, before[stage.server.pid])]
            with self._lock:
                self.flaws += flaws
                self.acknowledged += ours.acknowledged

    def _has_time(self, number: int) -> bool:
        return time.monotonic() < self._deadline

    def _came(self, outcome: FaultOutcome) -> None:
        with self._lock:
            self.outcomes.append(outcome)
            if outcome.ended in BAD:
                self._progress(f"{outcome.line} {outcome.number}, {outcome.spec}, {outcome.work}: {outcome.ended}")
                self._progress(outcome.reason[:SHOWN_CHARACTERS])
            if len(self.outcomes) % 25 == 0:
                bad = sum(each.ended in BAD for each in self.outcomes)
                self._progress(f"{len(self.outcomes)} faults, {bad} bad")


def _leaks(stage: Stage, before: tuple[int, int]) -> list[str]:
    """Return what the server holds more than before, when all clients have left."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        descriptors, threads = stage.held()
        more = descriptors > before[0] + SLACK_DESCRIPTORS or threads > before[1] + SLACK_THREADS
        if not more:
            return []
        if time.monotonic() > deadline:
            return [f"{descriptors} descriptors and {threads} threads, before {before[0]} and {before[1]}"]
        time.sleep(0.2)
