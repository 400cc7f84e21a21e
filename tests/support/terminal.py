"""A terminal for a test: this process's own output on a pseudo-terminal, or a child process on one."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path


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
    command: Sequence[str], answers: Mapping[str, str], *, cwd: Path | None = None, environment: Mapping[str, str]
) -> tuple[int, str]:
    """Run a command whose input and output are a terminal, until it ends. Return its exit code and what it printed.

    Each text of `answers` is typed once, as soon as its key has been printed.
    """
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=cwd, env={**os.environ, **environment}
    )
    os.close(theirs)
    came, waiting = b"", dict(answers)
    try:
        while True:
            try:
                data = os.read(ours, 65_536)
            except OSError:  # Linux says so when the last writer has gone
                break
            if not data:
                break
            came += data
            for question in [each for each in waiting if each.encode() in came]:
                os.write(ours, waiting.pop(question).encode())
        return child.wait(), came.decode().replace("\r\n", "\n")
    finally:
        child.kill()
        child.wait()
        os.close(ours)
