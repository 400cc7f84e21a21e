"""Records a flame graph of the server's process while it is measured, with py-spy.

It shows which threads held the interpreter's lock, and so the cost of Python code. It shows neither work in C++ without
the lock nor waits. py-spy slows the server down, so such a result is marked as `profiled`.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

Say = Callable[[str], object]

# Often enough to see a request of one millisecond. It costs less than 5 % of a core for about ten threads.
SAMPLES_PER_SECOND = 200
# py-spy draws the graph after SIGINT.
DRAW_SECONDS = 30.0
SHOWN_CHARACTERS = 300
TITLE = re.compile(r'(<text id="title"[^>]*>)[^<]*')
TITLE_TEXT = "the server: threads, and what they did while they held the interpreter's lock"


def graph_of(output: Path, run: int) -> Path:
    """Return the path of a run's flame graph."""
    return output.with_name(f"{output.stem}_profile_{run}.svg")


@contextlib.contextmanager
def profiled(pid: int | None, path: Path, say: Say) -> Iterator[None]:
    """Record the process `pid` into `path` while the context lasts. `say` gets the path, or the reason for no graph."""
    recorder = _started(pid, path, say)
    try:
        yield
    finally:
        if recorder is not None:
            _finish(recorder, path, say)


def _started(pid: int | None, path: Path, say: Say) -> subprocess.Popen[str] | None:
    program = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if pid is None:
        say("no profile: the server at --server was already running, and its process is not known")
        return None
    if program is None:
        say("no profile: py-spy is not installed; it is in the extra `benchmark`")
        return None
    path.unlink(missing_ok=True)
    rate = str(SAMPLES_PER_SECOND)
    # Only threads that hold the interpreter's lock: py-spy cannot distinguish a waiting event loop from a busy one.
    command = [program, "record", "--pid", str(pid), "--gil", "--threads", "--rate", rate, "--output", str(path)]
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
        _, error_text = recorder.communicate(timeout=DRAW_SECONDS)
    except subprocess.TimeoutExpired:
        recorder.kill()
        _, error_text = recorder.communicate()
    if path.exists():
        # py-spy uses its own command line as the title.
        drawn = path.read_text(encoding="utf-8")
        path.write_text(TITLE.sub(rf"\g<1>{TITLE_TEXT}", drawn, count=1), encoding="utf-8")
        say(f"flame graph of the server: {path}")
    else:
        # If the system does not allow ptrace, this error says so.
        reason = error_text.strip()[-SHOWN_CHARACTERS:] or "py-spy said nothing"
        say(f"no profile: {reason}")
