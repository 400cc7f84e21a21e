"""Starts a server in a process that ends with the context.

The process prints `listening on URL` on its first line of output. It does not get the terminal's Ctrl-C: that is for
the benchmark, which then ends the process.
"""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fastflight.errors import TransportError

# Python with Arrow and pandas starts in about a second; a busy machine takes several.
START_SECONDS = 60.0
# A server that was told to stop gives running streams five seconds, and its devices some more.
STOP_SECONDS = 20.0
LISTENING = re.compile(r"listening on (\S+?);")
# Of what a server that did not start complained about.
SHOWN_CHARACTERS = 1000


@dataclass(frozen=True, slots=True)
class Spawned:
    """A server that answers at `location`."""

    location: str
    pid: int


def free_port() -> int:
    """A port that nobody listens at now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def spawned(module: str, *arguments: str) -> contextlib.AbstractContextManager[Spawned]:
    """Run `python -m MODULE ARGUMENTS` while the context lasts. `TransportError` where it does not come up."""
    return spawned_by([sys.executable, "-m", module, *arguments], module)


@contextlib.contextmanager
def spawned_by(command: Sequence[str], where: str) -> Iterator[Spawned]:
    """Run a command that is a server; `where` is what errors call it."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as complaints:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
            start_new_session=True,
        )
        output = _OutputReader(process)
        try:
            location = output.location()
            if location is None:
                complaints.seek(0)
                reason = complaints.read().strip()[-SHOWN_CHARACTERS:] or "it said nothing"
                raise TransportError(f"the server did not start: {reason}", where=where)
            yield Spawned(location, process.pid)
        finally:
            end(process)
            output.close()


class _OutputReader:
    """What the process prints: read to its end, so that it never waits for a reader."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._location: str | None = None
        self._known = threading.Event()
        self._thread = threading.Thread(target=self._read, name="spawned-output")
        self._thread.start()

    def location(self) -> str | None:
        """The address, or None if the process ended or stayed silent instead."""
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
    """Tell a server to stop, and wait; kill it if it does not."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
