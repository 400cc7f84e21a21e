"""Starts printing boards (`printing_boards`) in a process that ends with the context."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from fastflight_benchmark.printing_boards import Options, Printed
from fastflight_benchmark.worker import Worker

MODULE = "fastflight_benchmark.printing_boards"


class Fleet:
    """Boards that print, at `urls`, from when somebody connects to them or, if they are to wait, from `start`."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.pid = worker.pid
        self.urls: Sequence[str] = [f"socket://127.0.0.1:{port}" for port in worker.hear()]

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
        return [Printed(**each) for each in self._worker.ask(word)]


@contextlib.contextmanager
def printing(options: Options) -> Iterator[Fleet]:
    """So many boards, while the context lasts."""
    with Worker(MODULE, json.dumps(asdict(options))) as worker:
        yield Fleet(worker)
