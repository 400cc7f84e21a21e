"""A process of the benchmark that reads tasks as lines of JSON and answers with lines of JSON.

It does not get the terminal's Ctrl-C: the benchmark gets it, and ends the worker when the context ends. A worker also
ends when its input does.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from types import TracebackType
from typing import Any, Self

from fastflight.errors import TransportError

# A worker notices the end of its input between two tasks. If it does not, it is killed after this time.
STOP_SECONDS = 2.0


class Worker:
    """Runs `python -m MODULE ARGUMENTS` while the context lasts. Each call raises `TransportError` if it has ended."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._module = module
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
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
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _ended(self) -> TransportError:
        return TransportError(
            "a process of the benchmark has ended", where=self._module, hint="Its error is printed above"
        )
