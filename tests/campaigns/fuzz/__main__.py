"""Fuzzes targets under atheris, each with the whole budget to itself, one after the other, in a process of its own.

    python -m tests.campaigns.fuzz --target telnet --runs 1000000
    python -m tests.campaigns.fuzz --target telnet --input crash.bin      # one input, without atheris

Exit code 1: a target failed.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path

from tests.campaigns import engine
from tests.campaigns.fuzz.campaign import Budget, TargetOutcome, fuzz
from tests.campaigns.fuzz.target import load, names


@dataclass(slots=True)
class FuzzOutcome:
    """What came of each target."""

    executions: int = 0
    targets: list[TargetOutcome] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not any(outcome.failed for outcome in self.targets)


def campaign(folder: Path, asked: argparse.Namespace) -> FuzzOutcome | engine.Verdict:
    """Fuzz the targets, or run one of them over a file."""
    chosen = names() if "all" in (asked.target or ["all"]) else asked.target
    if asked.input:
        target = load(chosen[0])
        with target.running():
            target.run(asked.input.read_bytes())
        return engine.Verdict(True)
    budget = Budget(asked.runs, asked.seconds or (0 if asked.runs else 60), asked.seed)
    found = FuzzOutcome()
    for name in chosen:
        found.targets.append(outcome := fuzz(name, budget))
        found.executions += outcome.executions
        engine.say(f"{name}: {outcome.executions:,} executions in {outcome.seconds:.0f} s, {outcome.coverage} branches")
        if outcome.failed:
            engine.say(outcome.log)
            engine.say(f"past: {outcome.failure}")
    return found


if __name__ == "__main__":
    engine.command(
        __doc__,
        campaign,
        engine.option("--target", None, "repeatable; default: all", action="append", choices=["all", *names()]),
        engine.option("--runs", 0, "executions of each target"),
        engine.option("--seconds", 0, "time of each target; 60 if no budget is given"),
        engine.option("--input", None, "run the one target over this file, once, without atheris", type=Path),
        seed=0,
    )
