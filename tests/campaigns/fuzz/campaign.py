"""Running targets within a budget, each in a process of its own, and what came of it.

A target ends at its first failure: an exception that it lets out, an execution that takes too long, too much memory, or
the end of the process. The input that did it is kept, and told as a literal that goes into the target's `past`.
What reached new code is kept for the next run, in `build/fuzz/NAME`.
"""

from __future__ import annotations

import hashlib
import re
import resource
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.campaigns.fuzz.target import load

BUILD = Path("build/fuzz")
# libFuzzer's words for how an input failed, which begin the names of the files that it leaves.
FAILURES = ("crash", "timeout", "oom", "leak")
# Of a failing process's output: the traceback, and what stands before it.
SHOWN_LINES = 40

_STATUS = re.compile(r"^#\d+\s+\w+.*?cov: (\d+) ft: (\d+) corp: (\d+)/", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Budget:
    """How much each target may run: executions, seconds, or whichever is met first; 0 is no bound."""

    runs: int = 0
    seconds: int = 0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class TargetOutcome:
    """What came of one target. `failure` is the literal of the input that broke it, and `log` what was printed."""

    name: str
    executions: int
    seconds: float
    # Of processors: on a busy machine the one figure that says how fast the target is.
    cpu_seconds: float
    # Branches of this package that were reached, and inputs that are kept because each reached something new.
    coverage: int
    kept: int
    failure: str = ""
    log: str = ""

    @property
    def failed(self) -> bool:
        return bool(self.failure or self.log)


def fuzz(name: str, budget: Budget, folder: Path = BUILD) -> TargetOutcome:
    """Run one target until its budget is used up, or it fails."""
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
        f"-runs={budget.runs or -1}",
        f"-max_total_time={budget.seconds}",
        f"-seed={budget.seed}",
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
    start, used = time.monotonic(), _cpu_seconds()
    ended = subprocess.run(
        [sys.executable, "-m", "tests.campaigns.fuzz.child", name, str(folder / name), *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    seconds, used = time.monotonic() - start, _cpu_seconds() - used
    statuses = _STATUS.findall(ended.stdout)
    coverage, _, kept = map(int, statuses[-1]) if statuses else (0, 0, 0)
    (executions,) = struct.unpack("<Q", counter.read_bytes())
    broken = sorted(path for path in found.iterdir() if path.name.partition("-")[0] in FAILURES)
    log = "\n".join(ended.stdout.splitlines()[-SHOWN_LINES:]) if ended.returncode else ""
    failure = repr(broken[0].read_bytes()) if broken else ""
    return TargetOutcome(name, executions, seconds, used, coverage, kept, failure, log)


def _cpu_seconds() -> float:
    """What ended children have used."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
