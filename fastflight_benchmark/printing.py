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
    """Boards that print at `urls`. Each prints while a client is connected; with `waiting`, only after `start`."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.pid = worker.pid
        self.urls: Sequence[str] = [f"socket://127.0.0.1:{port}" for port in worker.hear()]

    def toml(self) -> str:
        """Return a fleet file in which they are named `board-0`, `board-1` and so on."""
        return "".join(f'[devices.board-{number}]\nurl = "{url}"\n' for number, url in enumerate(self.urls))

    def start(self) -> None:
        """Start printing, if the boards were started with `waiting`."""
        self._ask("start")

    def count(self) -> list[Printed]:
        """Return what each board has printed so far."""
        return self._ask("count")

    def stop(self) -> list[Printed]:
        """Stop printing. Return what each board has printed."""
        return self._ask("stop")

    def _ask(self, word: str) -> list[Printed]:
        return [Printed(**each) for each in self._worker.ask(word)]


@contextlib.contextmanager
def printing(options: Options) -> Iterator[Fleet]:
    """Start printing boards; they end with the context."""
    with Worker(MODULE, json.dumps(asdict(options))) as worker:
        yield Fleet(worker)
