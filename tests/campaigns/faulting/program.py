"""A `fastflight` process that can be killed and started again.

It prints where it listens on its first lines of output. All its output is read, so that it never blocks. Its errors go
to a file, in which `complaints` looks for unexpected ones.
"""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from fastflight.errors import TransportError

LEASH = "tests.campaigns.faulting.leash"
# Python with Arrow starts in about a second; many of them on a busy machine take long.
START_SECONDS = 400.0
STOP_SECONDS = 30.0
SETTLE_SECONDS = 20.0
# What an error that was not foreseen leaves in a server's log.
UNFORESEEN = re.compile(r"request failed|Traceback \(most recent call last\)|Fatal Python error")


class Program:
    """`fastflight ARGUMENTS`, which ends when this process does (`leash`).

    `expected` are patterns, with one group, for what it says when it is ready.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        expected: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        # How it ended, each time that nobody had ended it: exit codes.
        self.died: list[int] = []
        self._killed = False
        self._environment = environment
        self.arguments = list(arguments)
        self._expected = [re.compile(each) for each in expected]
        self._log = log

    def spawn(self) -> None:
        """Start it, and do not wait until it is ready."""
        self._killed = False
        self._ready = threading.Event()
        self._found: list[str | None] = [None] * len(self._expected)
        with self._log.open("ab") as complaints:
            self._process = subprocess.Popen(
                [sys.executable, "-m", LEASH, *self.arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
                start_new_session=True,
                env=self._environment,
            )
        self._reader = threading.Thread(target=self._read, name=f"{self.name}-output")
        self._reader.start()

    def start(self) -> list[str]:
        """Start it, and return what the groups matched. `TransportError` if it does not start."""
        self.spawn()
        self._ready.wait(START_SECONDS)
        if None in self._found:
            self.kill()
            raise TransportError(f"{self.name} did not start: {self._log.read_text()[-1000:]}", where="campaign")
        return [found or "" for found in self._found]

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def freeze(self, frozen: bool) -> None:
        """Stop the process (SIGSTOP), or let it continue."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGSTOP if frozen else signal.SIGCONT)

    def kill(self) -> None:
        """End it as a crash does; or what is left of it, where it has ended by itself (`died`)."""
        if not self._killed and (code := self._process.poll()) is not None:
            self.died.append(code)
        self._killed = True
        self._process.kill()
        self._end()

    def stop(self, seconds: float = STOP_SECONDS) -> int:
        """Tell it to end, and return its exit code. It is killed if it does not end."""
        self._killed = True
        self._process.terminate()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._end()
        return self._process.returncode

    def complaints(self) -> list[str]:
        """Return unexpected errors: lines of its log, and each time that it ended by itself."""
        codes = [*self.died, *([self._process.returncode] if not self._killed and not self.is_alive else [])]
        ended = [f"it ended by itself with {code}" for code in codes]
        if not self._log.exists():
            return ended
        lines = self._log.read_text(errors="replace").splitlines()
        return [_with_end(lines, at) for at, line in enumerate(lines) if UNFORESEEN.search(line)] + ended

    def held(self) -> tuple[int, int]:
        """Return its open descriptors and threads."""
        with contextlib.suppress(OSError):
            folder = Path(f"/proc/{self.pid}")
            threads = re.search(r"Threads:\s+(\d+)", (folder / "status").read_text())
            return len(list((folder / "fd").iterdir())), int(threads[1]) if threads else 0
        return 0, 0

    def _end(self) -> None:
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            for number, pattern in enumerate(self._expected):
                if self._found[number] is None and (match := pattern.search(line)):
                    self._found[number] = match[1]
            if None not in self._found:
                self._ready.set()
        self._ready.set()


def leaks(program: Program, before: tuple[int, int], descriptors: int, threads: int) -> list[str]:
    """Return what a program, whose clients have left, holds more than `before` and so many descriptors and threads."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        now = program.held()
        if now[0] <= before[0] + descriptors and now[1] <= before[1] + threads:
            return []
        if time.monotonic() > deadline:
            return [f"{program.name}: {now[0]} descriptors and {now[1]} threads, before {before[0]} and {before[1]}"]
        time.sleep(0.2)


def _with_end(lines: list[str], at: int) -> str:
    """Return the line and, if a traceback begins there, its last two lines: the place and the error."""
    if "Traceback" not in lines[at]:
        return lines[at]
    rest = lines[at + 1 :]
    length = next(
        (number for number, line in enumerate(rest) if line and not line.startswith((" ", "+"))), len(rest) - 1
    )
    places = [line.strip() for line in rest[:length] if line.strip().startswith("File ")]
    return " | ".join([lines[at], *places[-1:], *rest[length : length + 1]])
