"""Measures this checkout and another commit in turns: `--against COMMIT`.

The commit is checked out into a temporary folder, with an environment of its own that uv makes from its lock file. The
two checkouts run the same suite, each with its own benchmark, in an order that is reversed with each turn. All turns of
a checkout become one result, in which a turn is a round: the figure of a turn is the median of its own rounds.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median

from fastflight.errors import DataError, RequestError, TransportError
from fastflight_benchmark.processes import finished
from fastflight_benchmark.result import Result, Row, load

ROOT = Path(__file__).parents[1]
SCRIPT = Path("fastflight_benchmark", "run_benchmark.py")
# An error text is shortened to its end, where the reason usually stands.
SHOWN_CHARACTERS = 600
# A whole suite takes hours.
MOST_SECONDS = 24 * 3600.0
Say = Callable[[str], object]


def measured(commit: str, turns: int, options: Sequence[str], say: Say) -> tuple[Result, Result]:
    """Return the results of `commit` and of this checkout. `options` go to both benchmarks."""
    with tempfile.TemporaryDirectory(prefix="fastflight-against-") as name, _checkout(commit, Path(name), say) as other:
        now = {False: ROOT, True: other}
        parts: dict[bool, list[Result]] = {False: [], True: []}
        for turn in range(1, turns + 1):
            for old in (True, False) if turn % 2 else (False, True):
                say(f"turn {turn} of {turns}: {commit if old else 'this checkout'}")
                output = Path(name) / f"{'old' if old else 'new'}-{turn}.json"
                _run(_python(other) if old else sys.executable, now[old], output, options, commit if old else "")
                parts[old].append(load(output))
    return together(parts[True]), together(parts[False])


def together(turns: Sequence[Result]) -> Result:
    """Return one result, whose rounds are the turns. A row that a turn lacks has no figure there."""
    rows: dict[tuple[object, ...], Row] = {}
    for number, turn in enumerate(turns, 1):
        for row in turn.rows:
            whole = rows.setdefault(row.key, Row(row.cell, row.contender, row.measure, row.unit, row.better))
            whole.put(number, median(row.known))
    return Result(turns[-1].description, list(rows.values()))


@contextlib.contextmanager
def _checkout(commit: str, folder: Path, say: Say) -> Iterator[Path]:
    """Check out `commit` below `folder` and make its environment, while the context lasts."""
    found = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}")
    if found.returncode:
        reason = found.stderr.strip() or "no such commit"
        raise RequestError(reason, where=f"--against {commit}", hint="`git log --oneline` lists commits")
    other = folder / "checkout"
    added = _git("worktree", "add", "--detach", "--quiet", str(other), found.stdout.strip())
    if added.returncode:
        raise RequestError(added.stderr.strip()[-SHOWN_CHARACTERS:], where=f"--against {commit}")
    try:
        say(f"making the environment of {commit}")
        where = f"--against {commit}"
        synced = [_program("uv", where), "sync", "--quiet", "--frozen", "--no-dev", "--group", "benchmark"]
        _done(synced, other, where)
        yield other
    finally:
        _git("worktree", "remove", "--force", str(other))


def _run(python: str, checkout: Path, output: Path, options: Sequence[str], commit: str) -> None:
    command = [python, str(checkout / SCRIPT), "--runs", "1", "--output", str(output), *options]
    where = f"the benchmark of {commit or 'this checkout'}"
    text = _done(command, checkout / SCRIPT.parent, where, {0, 1})
    if not output.exists():
        reason = text.strip()[-SHOWN_CHARACTERS:]
        raise DataError(f"wrote no result that can be compared: {reason}", where=where, hint="Choose a later commit")


def _python(checkout: Path) -> str:
    return str(checkout / (".venv/Scripts/python.exe" if sys.platform == "win32" else ".venv/bin/python"))


def _program(name: str, where: str) -> str:
    """Return the path of a program. `RequestError` if it is not installed."""
    found = shutil.which(name)
    if found is None:
        raise RequestError(f"{name} is not on the path", where=where, hint="It needs git, uv and a clone")
    return found


def _git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([_program("git", "--against"), *words], cwd=ROOT, capture_output=True, text=True, check=False)


def _done(command: Sequence[str], folder: Path, where: str, right: frozenset[int] | set[int] = frozenset({0})) -> str:
    """Run a command to its end and return what it printed. `RequestError` if it fails."""
    # Variables that name this checkout's environment, or its packages, must not reach the other one.
    own = ("VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT", "PYTHONPATH", "PYTHONHOME")
    environment = {name: value for name, value in os.environ.items() if name not in own}
    try:
        ended = finished(
            command, MOST_SECONDS, folder=folder, environment=environment, where=where, right=frozenset(right)
        )
    except TransportError as error:
        raise RequestError(str(error)) from error
    return ended.output + ended.errors
