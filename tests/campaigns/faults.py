"""Injects faults at every hop while files are copied, sessions are read and recordings are written.

    python -m tests.campaigns faults --rounds 1000 --seed 1
    python -m tests.campaigns faults --rounds 1000 --tls              # TLS and a token at the server's ports
    python -m tests.campaigns faults --rounds 40 --line socket        # only devices behind a socket
    python -m tests.campaigns faults --only 17 --line serial          # repeat one fault by its number

There is a stage for each line, and rounds change between the stages. A round does one work under one fault. Then it
repairs what ended, does the same work again without a fault, and checks the recording of the board that prints lines.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial

import pyarrow as pa

from tests.campaigns.engine import Campaign, Invariant, option
from tests.campaigns.faulting.program import leaks
from tests.campaigns.faulting.stage import LINES, Stage
from tests.campaigns.faulting.trial import Trials

# After so many faults a stage is warm: what its server holds then is what the end is compared with.
WARM_ROUNDS = 8
# gRPC's threads and pollers come and go.
SLACK_DESCRIPTORS, SLACK_THREADS = 12, 16


class Faults(Campaign):
    name = "faults"
    rounds = 100
    needed = ("struck", "rows acknowledged")
    options = (
        option("--line", None, "repeatable; default: all", choices=LINES, action="append"),
        option("--tls", False, "TLS and a token at the server's ports, where bits flip, too", action="store_true"),
    )

    def start(self) -> None:
        pa.array([0])  # with its first conversion Arrow loads pandas: that is no work under a fault
        self._trials: list[Trials] = []
        # By the process of a server: its descriptors and threads when it was warm.
        self._held: dict[int, tuple[int, int]] = {}
        for line in self.asked.line or LINES:
            folder = self.folder / line
            folder.mkdir()
            stage = self.stack.enter_context(Stage(folder, line, tls=self.asked.tls, seed=self.asked.seed))
            self.programs += stage.programs
            self._trials.append(Trials(self, stage))
            self.counts.update(f"not placed: {missing}" for missing in stage.missing)

    def carry_out(self, number: int, chance: random.Random) -> None:
        trials = self._trials[number % len(self._trials)]
        trials.carry_out(chance)
        if trials.count >= WARM_ROUNDS:
            server = trials.stage.server
            self._held.setdefault(server.pid, server.held())

    def at_end(self) -> dict[str, Invariant]:
        checks: dict[str, Invariant] = {}
        for each in self._trials:
            for name, check in each.at_end().items():
                checks[f"{each.stage.line}: {name}"] = check
            checks[f"{each.stage.line}: no descriptor or thread is leaked"] = partial(self._leaks, each.stage)
        return checks

    def _leaks(self, stage: Stage) -> Iterator[str]:
        if (before := self._held.get(stage.server.pid)) is not None:
            yield from leaks(stage.server, before, SLACK_DESCRIPTORS, SLACK_THREADS)


CAMPAIGN = Faults
