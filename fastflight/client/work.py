"""Long work that one thread runs and any other may give up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from fastflight.errors import Stopped

T_co = TypeVar("T_co", covariant=True)


class Work(Protocol[T_co]):
    """`run` returns when it is done; `give_up`, from any thread, makes it raise `Stopped` soon instead."""

    def run(self) -> T_co: ...

    def give_up(self) -> None: ...


class Steps:
    """Work in steps, one after another: giving it up stops the one that runs, and none begins after that."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._given_up = False
        self._stop: Callable[[], None] | None = None

    def give_up(self) -> None:
        """Stop, from any thread."""
        with self._lock:
            self._given_up = True
            stop = self._stop
        if stop is not None:
            stop()

    @contextmanager
    def step(self, stop: Callable[[], None]) -> Iterator[None]:
        """A step that `stop` ends from another thread."""
        with self._lock:
            self._check()
            self._stop = stop
        try:
            yield
        finally:
            with self._lock:
                self._stop = None

    def _check(self) -> None:
        if self._given_up:
            raise Stopped("this was given up")
