"""Starts programs in processes of their own: servers, workers, and commands that run to their end.

None of them gets the terminal's Ctrl-C: the benchmark gets it, and ends them when their context ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from fastflight.errors import TransportError

# Python with Arrow and pandas starts in about a second; a busy machine takes several.
START_SECONDS = 60.0
# A stopping server gives running streams five seconds, and then closes its devices.
STOP_SECONDS = 20.0
# A worker notices the end of its input between two tasks. If it does not, it is killed after this time.
WORKER_STOP_SECONDS = 2.0
LISTENING = re.compile(r"listening on (\S+?);")
# The output of a program that failed is shortened to its end, where the reason usually stands.
SHOWN_CHARACTERS = 1000


class Spawned:
    """A server that answers at `location`. `pid` is 0 if it was not started here."""

    def __init__(self, location: str, pid: int = 0) -> None:
        self.location = location
        self.pid = pid
        own = [psutil.Process(pid)] if pid else []
        self._processes = own + [child for process in own for child in process.children(recursive=True)]

    def cpu_seconds(self) -> float:
        """Return the processor time so far of its process and its children; NaN if its process is unknown."""
        return sum(map(cpu_seconds, self._processes)) if self._processes else float("nan")


def cpu_seconds(process: psutil.Process) -> float:
    """Return the processor time of a process so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


def spawned(
    module: str, *arguments: str, pattern: re.Pattern[str] = LISTENING
) -> contextlib.AbstractContextManager[Spawned]:
    """Run `python -m MODULE ARGUMENTS` while the context lasts. Raise `TransportError` if it does not start."""
    return spawned_by([sys.executable, "-m", module, *arguments], module, pattern)


@contextlib.contextmanager
def spawned_by(command: Sequence[str], where: str, pattern: re.Pattern[str] = LISTENING) -> Iterator[Spawned]:
    """Run a server's command while the context lasts. `where` is its name in errors.

    It has started when a line of its output has `pattern`, whose group is the location.
    """
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as error_output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=error_output,
            text=True,
            start_new_session=True,
        )
        output = _OutputReader(process, pattern)
        try:
            location = output.location()
            if location is None:
                error_output.seek(0)
                reason = error_output.read().strip()[-SHOWN_CHARACTERS:] or "it printed no error"
                raise TransportError(f"the server did not start: {reason}", where=where)
            yield Spawned(location, process.pid)
        finally:
            process.terminate()
            _wait(process, STOP_SECONDS)
            output.close()


class _OutputReader:
    """Reads the output of the process to its end, so that the process never waits for a reader."""

    def __init__(self, process: subprocess.Popen[str], pattern: re.Pattern[str]) -> None:
        self._process = process
        self._pattern = pattern
        self._location: str | None = None
        self._known = threading.Event()
        self._thread = threading.Thread(target=self._read, name="spawned-output")
        self._thread.start()

    def location(self) -> str | None:
        """Return the address, or None if the process ended or printed none in time."""
        self._known.wait(START_SECONDS)
        return self._location

    def close(self) -> None:
        self._thread.join()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            if self._location is None and (found := self._pattern.search(line)):
                self._location = found[1]
                self._known.set()
        self._known.set()


class Worker:
    """Runs `python -m MODULE ARGUMENTS`, which reads tasks as lines of JSON and answers with lines of JSON.

    It ends with the context, and when its input does. Each call raises `TransportError` if it has ended.
    """

    def __init__(self, module: str, *arguments: str, command: Sequence[str] = (sys.executable, "-m")) -> None:
        """`command` runs the module; that of another project's environment takes a file in its place."""
        self._module = module
        self._process = subprocess.Popen(
            [*command, module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.pid = self._process.pid

    def tell(self, what: object) -> None:
        """Send a line."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(what) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._ended() from error

    def hear(self) -> Any:
        """Wait for the next line."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        return json.loads(line)

    def ask(self, what: object) -> Any:
        """Send a line and wait for the answer."""
        self.tell(what)
        return self.hear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it ended before it read all of its input
            self._process.stdin.close()
        if error is not None:
            self._process.kill()
        _wait(self._process, WORKER_STOP_SECONDS)
        self._process.stdout.close()

    def _ended(self) -> TransportError:
        return TransportError(
            "a process of the benchmark has ended", where=self._module, hint="Its error is printed above"
        )


@dataclass(frozen=True, slots=True)
class Finished:
    """What a command printed (`output` with `errors` after it), its exit code, and the seconds from start to end."""

    output: str
    errors: str
    code: int
    seconds: float


def finished(
    command: Sequence[str | Path],
    limit: float,
    *,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    where: str = "",
    right: frozenset[int] = frozenset({0}),
) -> Finished:
    """Run a command to its end. `TransportError` if it does not start, takes more than `limit` seconds, or fails.

    It fails if its exit code is not one of `right`; if `right` is empty, all are.
    """
    where = where or Path(command[0]).name
    began = time.perf_counter()
    try:
        ended = subprocess.run(
            command,
            cwd=folder,
            env=None if environment is None else dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit,
            check=False,
        )
    except OSError as error:
        raise TransportError(f"did not start: {error.strerror}", where=where) from error
    except subprocess.TimeoutExpired as error:
        raise TransportError(f"took more than {limit:g} s", where=where) from error
    seconds = time.perf_counter() - began
    if right and ended.returncode not in right:
        reason = (ended.stderr or ended.stdout).strip()[-SHOWN_CHARACTERS:]
        raise TransportError(f"exit code {ended.returncode}: {reason}", where=where)
    return Finished(ended.stdout, ended.stderr, ended.returncode, seconds)


def users_environment() -> dict[str, str]:
    """Return this environment without fastflight's settings. Python stores what it compiles, as it does for users."""
    left_out = ("FASTFLIGHT_", "VISUAL", "PYTHONDONTWRITEBYTECODE")
    return {name: value for name, value in os.environ.items() if not name.startswith(left_out)}


def _wait(process: subprocess.Popen[str], seconds: float) -> None:
    """Wait for the end of a process. Kill it if that takes too long."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
