"""A terminal for a test: this process's own output on a pseudo-terminal, or a child process on one."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from tests.support.commands import Command

# A command that prints nothing for so long waits for keys that never come.
SILENT_SECONDS = 60.0


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


class TerminalCommand:
    """A command whose input and output are a terminal. `plain`: without carriage returns in what is shown.

    `shown` is all that it has printed so far.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path | None = None,
        environment: Mapping[str, str],
        plain: bool = False,
    ) -> None:
        self._ours, theirs = pty.openpty()
        self._settings = termios.tcgetattr(theirs)
        self._plain = plain
        self._looked_at = 0
        self.shown = b""
        self._child = Command(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=cwd,
            env={**os.environ, **environment},
            start_new_session=True,
        )
        os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._child.kill()
        self._child.wait()
        os.close(self._ours)

    def type(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def send_signal(self, number: signal.Signals) -> None:
        self._child.send_signal(number)

    def wait_for(self, text: bytes | re.Pattern[bytes]) -> bytes:
        """Read until it shows `text`. Return what it shows up to there, from the end of the text before on."""
        pattern = re.compile(re.escape(text)) if isinstance(text, bytes) else text
        while not (found := pattern.search(self.shown, self._looked_at)):
            assert self._read(), (pattern.pattern, self.shown)
        came = self.shown[self._looked_at : found.end()]
        self._looked_at = found.end()
        return came

    def end(self) -> tuple[int, bytes]:
        """Wait until it ends. Return the exit code, and what it has shown from the end of the last text on."""
        while self._read():
            pass
        assert termios.tcgetattr(self._ours) == self._settings
        return self._child.wait(), self.shown[self._looked_at :]

    def _read(self) -> bool:
        readable, _, _ = select.select([self._ours], [], [], SILENT_SECONDS)
        assert readable, f"the command prints nothing more: {self.shown!r}"
        try:
            data = os.read(self._ours, 65_536)
        except OSError:  # Linux says so when the last writer has gone
            return False
        # Both a board and the terminal write a carriage return before a line feed.
        self.shown = (self.shown + data).replace(b"\r" if self._plain else b"\r\r\n", b"" if self._plain else b"\r\n")
        return bool(data)


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
    with TerminalCommand(command, cwd=cwd, environment=environment, plain=True) as terminal:
        for text, keys in answers:
            terminal.wait_for(text.encode())
            terminal.type(keys.encode())
        code, _ = terminal.end()
        return code, terminal.shown.decode(errors="replace")
