"""Injects faults into a cluster of three servers and three NATS nodes while boards are written to and recorded.

    python -m tests.campaigns cluster --rounds 150 --seed 1

Boards count when two servers write to them at the same time. What servers say is stored in the shared recordings is
read at once, and again at the end from another server. A round has one fault, or two at once. `clustering.stage` has
the set-up, `clustering.faults` what can happen.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from fastflight.errors import FastFlightError
from tests.campaigns import engine
from tests.campaigns.clustering.compacting import damage_found, parts_made
from tests.campaigns.clustering.faults import KINDS, draw, ready, stops_same
from tests.campaigns.clustering.stage import SERVERS, ClusterStage
from tests.campaigns.clustering.work import Auditor, Follower, Work, Writer, final_flaws

BOARDS = 4
# One round of two has a second fault, and what is whole then is asked for after so many rounds.
SECOND_FAULT, SETTLE_AFTER = 0.5, 7
REST_SECONDS = 1.0
# The rows that are on their way at the end.
LAST_SECONDS = 60.0


class Cluster(engine.Campaign):
    name = "cluster"
    needed = ("struck", "rows acknowledged", "bytes written")
    options = (engine.option("--boards", BOARDS),)

    def start(self) -> None:
        self._stage = stage = self.stack.enter_context(ClusterStage(self.folder, self.asked.boards))
        if stage.missing:
            engine.say(f"no disk is filled: {stage.missing}")
        self.programs += [server.program for server in stage.servers.values()]
        self._kinds = [kind for kind in KINDS if stage.disks or not kind.startswith("disk")]
        seed = self.asked.seed
        self._auditors = [Auditor(stage, name, seed) for name in stage.boards]
        others = [kind(stage, name, seed) for kind in (Writer, Follower) for name in stage.boards]
        self._works: list[Work] = [*self._auditors, *others]
        for work in self._works:
            work.start()

    def carry_out(self, number: int, chance: random.Random) -> None:
        kinds = [chance.choice(self._kinds)]
        if chance.random() < SECOND_FAULT:
            kinds.append(chance.choice(self._kinds))
        faults = [draw(self._stage, kind, chance) for kind in kinds]
        # At once, but for two that stop or start the same program.
        with ThreadPoolExecutor(1 if stops_same(*kinds) else len(faults)) as threads:
            list(threads.map(self.strike, faults))
        time.sleep(chance.uniform(0, REST_SECONDS))
        acknowledged = sum(each.acknowledged for each in self._auditors)
        self.counts["rounds with acknowledged rows"] += acknowledged > self.counts["rows acknowledged"]
        self.counts["rows acknowledged"] = acknowledged
        if number % SETTLE_AFTER == SETTLE_AFTER - 1:
            self.check({"the cluster is whole again": self._not_whole})

    def finish(self) -> None:
        self.check({
            "the cluster is whole again": self._not_whole,
            "work ends in time, with rows in order and documented errors": self._badly_ended,
        })  # fmt: skip

    def at_end(self) -> dict[str, engine.Invariant]:
        return {
            "acknowledged rows are there once": self._lost,
            "no two servers write to a board": self._overlaps,
            "no recording is damaged": self._damage,
        }

    def _badly_ended(self) -> list[str]:
        return engine.settled(self._works, self.counts)

    def _not_whole(self) -> Iterator[str]:
        began = time.monotonic()
        try:
            ready(self._stage)
            self._stage.settle()
        except AssertionError as error:
            yield f"{error}; {[server.status() for server in self._stage.servers.values()]}"
        self.at_most("longest seconds until whole", round(time.monotonic() - began))

    def _lost(self) -> Iterator[str]:
        for auditor in self._auditors:
            yield from self._final(auditor)
        self.counts["rows acknowledged"] = sum(each.acknowledged for each in self._auditors)

    def _overlaps(self) -> Iterator[str]:
        for name, board in self._stage.boards.items():
            yield from (f"{name}: {each}" for each in board.overlaps)
            self.counts["bytes written"] += board.written
            self.counts["owners"] += board.connected

    def _damage(self) -> Iterator[str]:
        for server in self._stage.servers.values():
            text = server.log.read_text(errors="replace")
            self.counts["parts compacted"] += parts_made(text)
            yield from (f"{server.name}: {line}" for line in damage_found(text))

    def _final(self, auditor: Auditor) -> list[str]:
        """Judge a recording at the end, from any server that answers."""
        deadline = time.monotonic() + LAST_SECONDS
        while True:
            for name in SERVERS:
                try:
                    return final_flaws(auditor, self._stage.servers[name])
                except FastFlightError as error:
                    if time.monotonic() > deadline:
                        return [f"the recording of {auditor.device} cannot be read: {error}"]
            time.sleep(1)


CAMPAIGN = Cluster
