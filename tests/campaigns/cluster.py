"""Injects faults into a cluster of three servers and three NATS nodes while boards are written to and recorded.

    python -m tests.campaigns.cluster --faults 200 --seed 1

Boards count when two servers write to them at the same time. What servers say is stored in the shared recordings is
read at once, and again at the end from another server. Exit code 1: an acknowledged row is missing or is there twice,
two servers wrote to a board at the same time, an error was not one of fastflight's, something never ended, or the
cluster was not whole again. `clustering.stage` has the set-up, `clustering.faults` what can happen.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from fastflight.errors import FastFlightError
from tests.campaigns import engine
from tests.campaigns.clustering.compacting import damage_found, parts_made
from tests.campaigns.clustering.faults import FAULTS, ready, stops_same
from tests.campaigns.clustering.stage import SERVERS, ClusterStage
from tests.campaigns.clustering.work import Auditor, Follower, Work, Writer, final_flaws

BOARDS = 4
# One fault of two begins while another one is in force, and what is whole then is asked for after so many.
SECOND_FAULT, SETTLE_AFTER = 0.5, 10
REST_SECONDS = 1.0
# The rows that are on their way at the end.
LAST_SECONDS = 60.0


@dataclass(slots=True)
class ClusterOutcome:
    """What was found. `acknowledging` counts the faults during which rows were acknowledged."""

    faults: Counter[str] = field(default_factory=Counter)
    acknowledging: int = 0
    rows: int = 0
    written_bytes: int = 0
    owners: int = 0
    ended: dict[str, Counter[str]] = field(default_factory=dict)
    flaws: list[str] = field(default_factory=list)
    # Unexpected errors in the logs of servers.
    complaints: list[str] = field(default_factory=list)
    # Made of messages, while faults struck.
    parts: int = 0
    slowest_recovery: float = 0.0
    seconds: float = 0.0

    @property
    def clean(self) -> bool:
        return not self.flaws and not self.complaints and self.rows > 0 and self.written_bytes > 0


def campaign(stage: ClusterStage, faults: int, seed: int, seconds: float = float("inf")) -> ClusterOutcome:
    """Inject `faults` faults, none after `seconds`. The same seed draws the same faults."""
    outcome = ClusterOutcome()
    chance = random.Random(seed)
    kinds = [kind for kind in FAULTS if stage.disks or not kind.startswith("disk")]
    auditors = [Auditor(stage, name, seed) for name in stage.boards]
    works: list[Work] = [*auditors, *(kind(stage, name, seed) for kind in (Writer, Follower) for name in stage.boards)]
    for work in works:
        work.start()
    began = time.monotonic()
    deadline = began + seconds
    try:
        while sum(outcome.faults.values()) < faults and time.monotonic() < deadline:
            before = sum(each.acknowledged for each in auditors)
            bag = [chance.choice(kinds)]
            if chance.random() < SECOND_FAULT:
                bag.append(chance.choice(kinds))
            for each in (striking := _strike(stage, bag, chance)):
                each.join()
                outcome.faults[each.kind] += 1
                outcome.flaws += [each.flaw] if each.flaw else []
            time.sleep(chance.uniform(0, REST_SECONDS))
            rows = sum(each.acknowledged for each in auditors)
            outcome.acknowledging += len(bag) if rows > before else 0
            count = sum(outcome.faults.values())
            struck = "; ".join(f"{each.what} ({each.seconds:.1f} s)" for each in striking)
            engine.say(f"{count}: {struck}; {rows} rows acknowledged")
            if count // SETTLE_AFTER != (count - len(bag)) // SETTLE_AFTER or count >= faults:
                _settle(stage, outcome)
    except KeyboardInterrupt:
        engine.say("ended early")
    finally:
        for work in works:
            work.leave()
        for work in works:
            work.settle()
            outcome.flaws += work.flaws
            outcome.ended[work.kind] = outcome.ended.get(work.kind, Counter()) + work.ended
    for auditor in auditors:
        outcome.flaws += _final(stage, auditor)
        outcome.rows += auditor.acknowledged
    for name, board in stage.boards.items():
        outcome.flaws += [f"two writers at {name}: {each}" for each in board.overlaps]
        outcome.written_bytes += board.written
        outcome.owners += board.connected
    for server in stage.servers.values():
        outcome.complaints += [f"{server.name}: {each[:600]}" for each in server.program.complaints()]
        text = server.log.read_text(errors="replace")
        outcome.parts += parts_made(text)
        outcome.flaws += [f"{server.name}: {line}" for line in damage_found(text)]
    outcome.seconds = time.monotonic() - began
    return outcome


def _strike(stage: ClusterStage, kinds: list[str], chance: random.Random) -> list[engine.Strike[ClusterStage]]:
    """Begin the faults, all at once. Not two that stop or start the same program."""
    striking = [engine.Strike(stage, kind, FAULTS[kind], chance) for kind in kinds]
    for each in striking:
        each.start()
        if stops_same(*kinds):
            each.join()
    return striking


def _settle(stage: ClusterStage, outcome: ClusterOutcome) -> None:
    began = time.monotonic()
    try:
        ready(stage)
        stage.settle()
    except AssertionError as error:
        outcome.flaws.append(f"the cluster is not whole again: {error}; {[s.status() for s in stage.servers.values()]}")
    outcome.slowest_recovery = max(outcome.slowest_recovery, time.monotonic() - began)


def _final(stage: ClusterStage, auditor: Auditor) -> list[str]:
    """Judge a recording at the end, from any server that answers."""
    deadline = time.monotonic() + LAST_SECONDS
    while True:
        for name in SERVERS:
            try:
                return final_flaws(auditor, stage.servers[name])
            except FastFlightError as error:
                if time.monotonic() > deadline:
                    return [f"the recording of {auditor.device} cannot be read: {error}"]
        time.sleep(1)


def run(folder: Path, asked: argparse.Namespace) -> ClusterOutcome:
    with ClusterStage(folder, asked.boards) as stage:
        if stage.missing:
            engine.say(f"no disk is filled: {stage.missing}")
        return campaign(stage, asked.faults, asked.seed, 60 * asked.minutes)


if __name__ == "__main__":
    engine.command(
        __doc__,
        run,
        engine.option("--faults", 20),
        engine.option("--boards", BOARDS),
        engine.option("--minutes", float("inf"), "no fault begins after so many"),
    )
