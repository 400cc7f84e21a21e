"""A terminal for a test: this process's own output on a pseudo-terminal, or a child process on one."""

from __future__ import annotations

import codecs
import os
import pty
import select
import sys
import threading
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.commands import Command

# A command that prints nothing for so long waits for keys that never come.
SILENT_SECONDS = 30.0


@contextmanager
def terminal() -> Iterator[Callable[[], str]]:
    """Standard output and standard error as a terminal; gives what came so far."""
    ours, theirs = pty.openpty()
    tty.setraw(theirs)  # else it makes carriage returns of line ends
    came = bytearray()

    def read() -> None:
        while True:
            try:
                if not (data := os.read(ours, 65536)):
                    return
            except OSError:  # the other end is closed
                return
            came.extend(data)

    reader = threading.Thread(target=read)
    reader.start()
    out, err = (os.fdopen(os.dup(theirs), "w", encoding="utf-8") for _ in range(2))
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = out, err
    os.close(theirs)

    def end() -> str:
        for each in (out, err):
            each.close()
        reader.join()
        return came.decode()

    try:
        yield end
    finally:
        sys.stdout, sys.stderr = before
        end()
        os.close(ours)


def converse(
    command: Sequence[str],
    answers: Sequence[tuple[str, str]],
    *,
    cwd: Path | None = None,
    environment: Mapping[str, str],
) -> tuple[int, str]:
    """Run a command whose input and output are a terminal, until it ends. Return its exit code and what it printed,
    without carriage returns.

    `answers` are pairs: a text, and the keys to press when it has been printed after the keys of the pair before.
    """
    ours, theirs = pty.openpty()
    child = Command(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=cwd,
        env={**os.environ, **environment},
        start_new_session=True,
    )
    os.close(theirs)
    came, seen, waiting = "", 0, list(answers)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    try:
        while select.select([ours], [], [], SILENT_SECONDS)[0]:
            try:
                data = os.read(ours, 65_536)
            except OSError:  # Linux says so when the last writer has gone
                return child.wait(), came
            came += decoder.decode(data).replace("\r", "")
            while waiting and (at := came.find(waiting[0][0], seen)) >= 0:
                text, keys = waiting.pop(0)
                seen = at + len(text)
                os.write(ours, keys.encode())
        raise AssertionError(f"the command prints nothing more, {waiting} is left to answer: {came!r}")
    finally:
        child.kill()
        child.wait()
        os.close(ours)
