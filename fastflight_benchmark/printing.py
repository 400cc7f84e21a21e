"""The boards of `printing`, as a process of its own that ends with the context."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from fastflight.errors import TransportError
from fastflight_benchmark.printing_boards import Options, Printed

MODULE = "fastflight_benchmark.printing_boards"


class Fleet:
    """Boards that print, at `urls`, from when somebody connects to them or, if they are to wait, from `start`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid
        self.urls: Sequence[str] = [f"socket://127.0.0.1:{port}" for port in self._answer()]

    def toml(self) -> str:
        """A fleet file in which they are `board-0`, `board-1` and so on."""
        return "".join(f'[devices.board-{number}]\nurl = "{url}"\n' for number, url in enumerate(self.urls))

    def start(self) -> None:
        """Print from here on, if they were to wait."""
        self._ask("start")

    def count(self) -> list[Printed]:
        """What each board has printed so far."""
        return self._ask("count")

    def stop(self) -> list[Printed]:
        """Print no more. What each board has printed."""
        return self._ask("stop")

    def _ask(self, word: str) -> list[Printed]:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{word}\n")
            self._process.stdin.flush()
        return [Printed(**each) for each in self._answer()]

    def _answer(self) -> list[Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise TransportError("the printing boards are gone", where=MODULE)
        answer: list[Any] = json.loads(line)
        return answer


@contextlib.contextmanager
def printing(options: Options) -> Iterator[Fleet]:
    """So many boards, while the context lasts."""
    command = [sys.executable, "-m", MODULE, json.dumps(asdict(options))]
    # Ctrl-C is for the benchmark, which ends the boards itself.
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            yield Fleet(process)
        finally:
            process.kill()
