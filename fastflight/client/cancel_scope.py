"""Lets any thread stop long work of another one. Does not import asyncio, which small commands do not need."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fastflight.errors import Stopped


class CancelScope:
    """Lets another thread stop what a thread does: `cancel` stops what runs now, and nothing else begins."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancelled = False
        self._stop: Callable[[], None] | None = None

    def cancel(self) -> None:
        """Stop the work, from any thread."""
        with self._lock:
            self._cancelled = True
            stop = self._stop
        if stop is not None:
            stop()

    def check(self) -> None:
        """Raise `Stopped` after `cancel`."""
        if self._cancelled:
            raise Stopped("this was cancelled")

    @contextmanager
    def stopping(self, stop: Callable[[], None]) -> Iterator[None]:
        """Run the block, which `cancel` ends by calling `stop`. Raises `Stopped` after `cancel`."""
        with self._lock:
            self.check()
            self._stop = stop
        try:
            yield
        finally:
            with self._lock:
                self._stop = None
