"""Long work that runs in one thread and can be stopped from any other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from fastflight.errors import Stopped

T_co = TypeVar("T_co", covariant=True)


class Work(Protocol[T_co]):
    """`run` returns when the work is done. `give_up`, called from any thread, makes `run` raise `Stopped` soon."""

    def run(self) -> T_co: ...

    def give_up(self) -> None: ...


class Steps:
    """Base of work that runs step by step. `give_up` stops the running step, and no other step begins."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._given_up = False
        self._stop: Callable[[], None] | None = None

    def give_up(self) -> None:
        """Stop the work, from any thread."""
        with self._lock:
            self._given_up = True
            stop = self._stop
        if stop is not None:
            stop()

    @contextmanager
    def step(self, stop: Callable[[], None]) -> Iterator[None]:
        """Run the block as a step, which `stop` can end from another thread. Raises `Stopped` after `give_up`."""
        with self._lock:
            if self._given_up:
                raise Stopped("this was given up")
            self._stop = stop
        try:
            yield
        finally:
            with self._lock:
                self._stop = None
