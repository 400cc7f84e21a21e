"""Fuzzes targets under atheris, each for a while, one after the other, in a process of its own. Linux only.

    python -m tests.campaigns fuzz --target telnet --executions 1000000
    python -m tests.campaigns fuzz --target telnet --input crash.bin      # one input, without atheris

A target ends at its first failure: an exception that it lets out, an execution that takes too long, too much memory, or
the end of the process. The input that did it is kept, and told as a literal that goes into the target's `past`.
What reached new code is kept for the next run, in `build/fuzz/NAME`.
"""

from __future__ import annotations

import hashlib
import random
import re
import struct
import subprocess
import sys
from pathlib import Path

from tests.campaigns.engine import Campaign, Invariant, option, say
from tests.campaigns.fuzz.target import load, names

BUILD = Path("build/fuzz")
# libFuzzer's words for how an input failed, which begin the names of the files that it leaves.
FAILURES = ("crash", "timeout", "oom", "leak")
# Of a failing process's output: the traceback, and what stands before it.
SHOWN_LINES = 40

_STATUS = re.compile(r"^#\d+\s+\w+.*?cov: (\d+)", re.MULTILINE)


def fuzz(name: str, executions: int, seconds: int, seed: int, folder: Path = BUILD) -> tuple[int, int, str]:
    """Run one target for so many executions or seconds, 0 for any number, or until it fails.

    Return its executions, how many branches of this package they reached, and its output and the input if it failed.
    """
    target = load(name)
    corpus, seeds, found = (folder / name / part for part in ("corpus", "seeds", "found"))
    for each in (corpus, seeds, found):
        each.mkdir(parents=True, exist_ok=True)
    for old in [*seeds.iterdir(), *found.iterdir()]:
        old.unlink()
    for data in (*target.seeds, *target.past):
        (seeds / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    counter = folder / name / "executions"
    counter.write_bytes(bytes(8))
    options = [
        f"-runs={executions or -1}",
        f"-max_total_time={seconds}",
        f"-seed={seed}",
        f"-max_len={target.max_bytes}",
        f"-timeout={target.seconds}",
        f"-rss_limit_mb={target.max_megabytes}",
        f"-artifact_prefix={found}/",
        "-reload=0",
        "-verbosity=1",
        "-use_value_profile=0",
        # What runs long has to say more to be chosen as often.
        "-entropic_scale_per_exec_time=1",
        str(corpus),
        str(seeds),
    ]
    ended = subprocess.run(
        [sys.executable, "-m", "tests.campaigns.fuzz.child", name, str(folder / name), *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    coverage = max(map(int, _STATUS.findall(ended.stdout)), default=0)
    (executed,) = struct.unpack("<Q", counter.read_bytes())
    broken = sorted(path for path in found.iterdir() if path.name.partition("-")[0] in FAILURES)
    failure = "\n".join(ended.stdout.splitlines()[-SHOWN_LINES:]) if ended.returncode else ""
    if broken:
        failure += f"\npast: {broken[0].read_bytes()!r}"
    return executed, coverage, failure


class Fuzz(Campaign):
    """A round fuzzes each target once."""

    name = "fuzz"
    rounds = 1
    needed = ("executions",)
    options = (
        option("--target", None, "repeatable; default: all", action="append", choices=names()),
        option("--executions", 0, "of each target"),
        option("--time", 0, "seconds of each target; 60 if neither is given"),
        option("--input", None, "run the one target over this file, once, without atheris", type=Path),
    )

    def start(self) -> None:
        self._failures: list[str] = []

    def carry_out(self, number: int, chance: random.Random) -> None:
        asked = self.asked
        for name in asked.target or names():
            if asked.input:
                target = load(name)
                with target.running():
                    target.run(asked.input.read_bytes())
                self.counts["executions"] += 1
                continue
            seconds = asked.time or (0 if asked.executions else 60)
            executions, coverage, failure = fuzz(name, asked.executions, seconds, chance.randrange(2**31))
            self.counts["executions"] += executions
            say(f"{name}: {executions:,} executions, {coverage} branches")
            if failure:
                self._failures.append(f"{name}: {failure}")

    def always(self) -> dict[str, Invariant]:
        return {"any bytes are read or refused": lambda: self._failures}


CAMPAIGN = Fuzz
