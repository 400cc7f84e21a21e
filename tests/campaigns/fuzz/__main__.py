"""`python -m tests.campaigns.fuzz [--target NAME]... [--runs N] [--seconds S] [--seed N] [--input FILE]`.

Each target has the whole budget to itself, one after the other, in a process of its own. Ends with a table, and with 1
where a target failed. `--input` runs one target once over a file, as the normal tests do with what is kept of it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.campaigns.fuzz.campaign import Budget, FuzzOutcome, fuzz, table
from tests.campaigns.fuzz.target import load, names


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.campaigns.fuzz", description=__doc__)
    parser.add_argument("--target", action="append", choices=["all", *names()], help="default: all")
    parser.add_argument("--runs", type=int, default=0, help="executions of each target")
    parser.add_argument("--seconds", type=int, default=0, help="time of each target; 60 if no budget is given")
    parser.add_argument("--seed", type=int, default=0, help="the same seed takes the same way; 0: another each time")
    parser.add_argument("--input", type=Path, help="run the one target over this file, once, without atheris")
    asked = parser.parse_args(arguments)
    chosen = names() if "all" in (asked.target or ["all"]) else asked.target
    if asked.input:
        target = load(chosen[0])
        with target.running():
            target.run(asked.input.read_bytes())
        return 0
    seconds = asked.seconds or (0 if asked.runs else 60)
    outcomes: list[FuzzOutcome] = []
    for name in chosen:
        outcomes.append(outcome := fuzz(name, Budget(asked.runs, seconds, asked.seed)))
        say(f"{name}: {outcome.executions:,} executions in {outcome.seconds:.0f} s, {outcome.coverage} branches")
        if outcome.failed:
            say(outcome.log)
            say(f"past: {outcome.failure!r}" if outcome.failure is not None else "no input was left")
    say(table(outcomes))
    return int(any(outcome.failed for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
