"""Starts a server in a process that ends with the context.

The process prints `listening on URL` on its first line of output. It does not get the terminal's Ctrl-C: the benchmark
gets it, and then ends the process.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fastflight.errors import TransportError

# Python with Arrow and pandas starts in about a second; a busy machine takes several.
START_SECONDS = 60.0
# A stopping server gives running streams five seconds, and then closes its devices.
STOP_SECONDS = 20.0
LISTENING = re.compile(r"listening on (\S+?);")
# The error output of a server that did not start is shortened to this length.
SHOWN_CHARACTERS = 1000


@dataclass(frozen=True, slots=True)
class Spawned:
    """A server that answers at `location`."""

    location: str
    pid: int


def spawned(module: str, *arguments: str) -> contextlib.AbstractContextManager[Spawned]:
    """Run `python -m MODULE ARGUMENTS` while the context lasts. Raise `TransportError` if it does not start."""
    return spawned_by([sys.executable, "-m", module, *arguments], module)


@contextlib.contextmanager
def spawned_by(command: Sequence[str], where: str) -> Iterator[Spawned]:
    """Run a server's command while the context lasts. `where` is its name in errors."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as error_output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=error_output,
            text=True,
            start_new_session=True,
        )
        output = _OutputReader(process)
        try:
            location = output.location()
            if location is None:
                error_output.seek(0)
                reason = error_output.read().strip()[-SHOWN_CHARACTERS:] or "it printed no error"
                raise TransportError(f"the server did not start: {reason}", where=where)
            yield Spawned(location, process.pid)
        finally:
            end(process)
            output.close()


class _OutputReader:
    """Reads the output of the process to its end, so that the process never waits for a reader."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
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
            if (found := LISTENING.search(line)) and self._location is None:
                self._location = found[1]
                self._known.set()
        self._known.set()


def end(process: subprocess.Popen[str]) -> None:
    """Terminate a server and wait for its end. Kill it if that takes too long."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
