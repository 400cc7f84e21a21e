"""Injects faults into a cluster of three servers and three NATS nodes while boards are written to and recorded.

    python -m tests.campaigns.cluster --faults 200 --seed 1

Boards count when two servers write to them at the same time. What servers say is stored in the shared recordings is
read at once, and again at the end from another server. Exit code 1: an acknowledged row is missing or is there twice,
two servers wrote to a board at the same time, an error was not one of fastflight's, something never ended, or the
cluster was not whole again. `clustering.stage` has the set-up, `clustering.faults` what can happen.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path

from fastflight.errors import FastFlightError
from fastflight_benchmark import ending
from tests.campaigns.clustering.compacting import damage_found, parts_made
from tests.campaigns.clustering.faults import FAULTS, Striking, ready, stops_same
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


def campaign(
    stage: ClusterStage,
    faults: int,
    seed: int,
    progress: Callable[[str], object] = print,
    seconds: float = float("inf"),
) -> ClusterOutcome:
    """Inject `faults` faults, none after `seconds`. The same seed draws the same faults."""
    outcome = ClusterOutcome()
    chance = random.Random(seed)
    kinds = [kind for kind in FAULTS if stage.disks or not kind.startswith("disk")]
    auditors = [Auditor(stage, name, random.Random(f"{seed} {name}")) for name in stage.boards]
    works: list[Work] = [*auditors]
    for kind in (Writer, Follower):
        works += [kind(stage, name, random.Random(f"{seed} {kind.name} {name}")) for name in stage.boards]
    began = time.monotonic()
    deadline = began + seconds
    try:
        while sum(outcome.faults.values()) < faults and time.monotonic() < deadline:
            before = sum(each.acknowledged for each in auditors)
            bag = [chance.choice(kinds)]
            if chance.random() < SECOND_FAULT:
                bag.append(chance.choice(kinds))
            striking = _strike(stage, bag, chance)
            for each in striking:
                each.join()
                outcome.faults[each.kind] += 1
                outcome.flaws += [each.flaw] if each.flaw else []
            time.sleep(chance.uniform(0, REST_SECONDS))
            rows = sum(each.acknowledged for each in auditors)
            outcome.acknowledging += len(bag) if rows > before else 0
            count = sum(outcome.faults.values())
            struck = "; ".join(f"{each.what} ({each.seconds:.1f} s)" for each in striking)
            progress(f"{count}: {struck}; {rows} rows acknowledged")
            if count // SETTLE_AFTER != (count - len(bag)) // SETTLE_AFTER or count >= faults:
                _settle(stage, outcome)
    except KeyboardInterrupt:
        progress("ended early")
    finally:
        for work in works:
            work.end()
        for work in works:
            work.join()
            outcome.flaws += work.flaws
            outcome.ended[work.name] = outcome.ended.get(work.name, Counter()) + work.ended
    for auditor in auditors:
        outcome.flaws += _final(stage, auditor)
        outcome.rows += auditor.acknowledged
    for name, board in stage.boards.items():
        outcome.flaws += [f"two writers at {name}: {each}" for each in board.overlaps]
        outcome.written_bytes += board.written
        outcome.owners += board.connections
    for server in stage.servers.values():
        outcome.complaints += [f"{server.name}: {each[:600]}" for each in server.program.complaints()]
        text = server.log.read_text(errors="replace")
        outcome.parts += parts_made(text)
        outcome.flaws += [f"{server.name}: {line}" for line in damage_found(text)]
    outcome.seconds = time.monotonic() - began
    return outcome


def _strike(stage: ClusterStage, kinds: list[str], chance: random.Random) -> list[Striking]:
    """Begin the faults, the second one a moment after the first. Not two that stop or start the same program."""
    striking: list[Striking] = []
    for kind in kinds:
        each = Striking(stage, kind, random.Random(chance.random()), time.sleep)
        striking.append(each)
        if each is not striking[0]:
            continue
        if len(kinds) > 1 and stops_same(*kinds):
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


def summary(outcome: ClusterOutcome) -> str:
    return (
        f"{sum(outcome.faults.values())} faults, {outcome.acknowledging} of them while rows were acknowledged: "
        f"{outcome.rows} rows acknowledged, {outcome.written_bytes} bytes written to boards by {outcome.owners} "
        f"connections; {len(outcome.flaws)} flaws, "
        f"{len(outcome.complaints)} complaints in logs"
    )


def table(outcome: ClusterOutcome) -> str:
    """Return the outcome as the table of docs/reliability.md."""
    ended = {
        name: f"{counts['whole']:,} whole, {counts.total() - counts['whole']:,} with a typed error"
        for name, counts in outcome.ended.items()
    }
    rows = [
        *((f"fault: {kind}", f"{count}") for kind, count in sorted(outcome.faults.items())),
        ("faults in all", f"{outcome.faults.total()}"),
        ("while rows were acknowledged", f"{outcome.acknowledging}"),
        ("rows acknowledged", f"{outcome.rows:,}"),
        ("parts that rows were compacted to meanwhile", f"{outcome.parts}"),
        ("bytes written to boards", f"{outcome.written_bytes:,}, over {outcome.owners} connections"),
        *((f"streams of the {name}s", text) for name, text in ended.items()),
        ("rows lost or there twice, overlaps of owners, other flaws", f"{len(outcome.flaws)}"),
        ("unexpected errors in logs", f"{len(outcome.complaints)}"),
        ("longest time until the cluster was whole", f"{outcome.slowest_recovery:.1f} s"),
        ("time for all of it", f"{outcome.seconds / 60:.0f} minutes"),
    ]
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--boards", type=int, default=BOARDS)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="no fault begins after so many")
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, which is printed")
    parser.add_argument("--output", type=Path, default=None, help="write the outcome as JSON")
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if arguments.seed is None else arguments.seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="fastflight-cluster-") as folder:
        with ClusterStage(Path(folder), arguments.boards) as stage:
            if stage.missing:
                print(f"no disk is filled: {stage.missing}")
            outcome = campaign(
                stage, arguments.faults, seed, lambda text: print(text, flush=True), 60 * arguments.minutes
            )
    for flaw in outcome.flaws + outcome.complaints:
        print(f"flaw: {flaw[:1000]}")
    print(json.dumps({"ended": outcome.ended}, indent=1))
    print(table(outcome))
    print(summary(outcome))
    if arguments.output is not None:
        # Not `asdict`, which makes counters of pairs.
        found = {each.name: getattr(outcome, each.name) for each in fields(outcome)}
        arguments.output.write_text(json.dumps({"seed": seed, **found}, indent=1) + "\n", encoding="utf-8")
    return 0 if outcome.clean else 1


if __name__ == "__main__":
    ending.like_ctrl_c()
    sys.exit(main())
