"""A flame graph of the server's process while it is measured, by py-spy, from outside.

A server that is looked at is slower: what is measured meanwhile is no result, and is marked as `profiled`.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

Say = Callable[[str], object]

# Often enough for a request of a millisecond to be seen, and less than 5 % of a core for some ten threads.
SAMPLES_PER_SECOND = 200
# py-spy draws the graph when it is told to end.
DRAW_SECONDS = 30.0
SHOWN_CHARACTERS = 300


def graph_of(output: Path, run: int) -> Path:
    """The file of a run's flame graph."""
    return output.with_name(f"{output.stem}_profile_{run}.svg")


@contextlib.contextmanager
def profiled(pid: int | None, path: Path, say: Say) -> Iterator[None]:
    """Record the process `pid` into `path` while the context lasts; say that the graph is there, or why it is not."""
    recorder = _started(pid, path, say)
    try:
        yield
    finally:
        if recorder is not None:
            _finish(recorder, path, say)


def _started(pid: int | None, path: Path, say: Say) -> subprocess.Popen[str] | None:
    program = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if pid is None:
        say("no profile: the server at --server was there already, and its process is not known")
        return None
    if program is None:
        say("no profile: py-spy is not installed; it is in the extra `benchmark`")
        return None
    path.unlink(missing_ok=True)
    rate = str(SAMPLES_PER_SECOND)
    command = [program, "record", "--pid", str(pid), "--threads", "--rate", rate, "--output", str(path)]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _finish(recorder: subprocess.Popen[str], path: Path, say: Say) -> None:
    recorder.send_signal(signal.SIGINT)
    try:
        _, complaint = recorder.communicate(timeout=DRAW_SECONDS)
    except subprocess.TimeoutExpired:
        recorder.kill()
        _, complaint = recorder.communicate()
    if path.exists():
        say(f"flame graph of the server: {path}")
    else:
        # Where a process may not look at another (ptrace), this says so.
        reason = complaint.strip()[-SHOWN_CHARACTERS:] or "py-spy said nothing"
        say(f"no profile: {reason}")
