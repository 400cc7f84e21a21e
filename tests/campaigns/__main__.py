"""Runs a campaign: `python -m tests.campaigns NAME --seed S --rounds N --seconds T`.

It ends after so many rounds or seconds, or at Ctrl-C. Then the report is printed, and written to the file that
`--output` names. Exit code 1: an invariant was violated, or there was no effect.
"""

from __future__ import annotations

import argparse
import importlib
import random
import sys
import tempfile
from pathlib import Path

from fastflight_benchmark import ending
from tests.campaigns import engine
from tests.support.targets import TargetMissing

# The module of each, in which `CAMPAIGN` is its class. Only that one is imported: some are for Linux.
MODULES = {
    name: f"tests.campaigns.{name}" for name in ("cluster", "collectors", "deploy", "faults", "kills", "puts", "soak")
} | {"fuzz": "tests.campaigns.fuzz.campaign"}


def main() -> int:
    ending.like_ctrl_c()
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=sorted(MODULES))
    parser.add_argument("options", nargs=argparse.REMAINDER, help="--help shows those of the campaign")
    chosen = parser.parse_args()
    module = importlib.import_module(MODULES[chosen.name])
    asked = options_of(module.CAMPAIGN, module.__doc__).parse_args(chosen.options)
    engine.say(f"seed {asked.seed}")
    try:
        with tempfile.TemporaryDirectory(prefix="fastflight-campaign-") as folder:
            with module.CAMPAIGN(Path(folder), asked) as campaign:
                report = campaign.run()
    except TargetMissing as error:
        engine.say(str(error))
        return 1
    engine.write(report, asked.output)
    return 0 if report.clean else 1


def options_of(kind: type[engine.Campaign], doc: str | None) -> argparse.ArgumentParser:
    """Return the options that all campaigns have, and those of this one."""
    parser = argparse.ArgumentParser(
        prog=f"python -m tests.campaigns {kind.name}",
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    fresh = random.SystemRandom().randrange(2**32)
    for name, keys in (
        engine.option("--seed", fresh, "default: a new one"),
        engine.option("--rounds", kind.rounds, f"default: {kind.rounds}"),
        engine.option("--seconds", kind.seconds, f"no round begins after so many; default: {kind.seconds:g}"),
        engine.option("--only", None, "only the round of this number; repeatable", type=int, action="append"),
        engine.option("--output", None, "a JSON file for the report", type=Path),
        *kind.options,
    ):
        parser.add_argument(name, **keys)
    return parser


if __name__ == "__main__":
    sys.exit(main())
