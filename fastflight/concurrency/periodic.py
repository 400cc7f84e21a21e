"""A thread that calls a function periodically, and goes on if a call fails."""

from __future__ import annotations

import threading
from collections.abc import Callable

from fastflight.lazy import Logger

log = Logger(__name__)


class PeriodicThread:
    """Calls `look` every `seconds`, in a thread called `name`, from `start` to `close`.

    If a call raises, the exception is logged and the calls go on. Of several failures in a row, only the first is
    logged.
    """

    def __init__(self, look: Callable[[], object], seconds: float, name: str) -> None:
        self._look = look
        self._seconds = seconds
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread. Does nothing the second time, or if it was not started."""
        self._closed.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        failing = False
        while not self._closed.wait(self._seconds):
            try:
                self._look()
                failing = False
            except Exception:  # an edge: no caller waits for this thread
                if not failing:
                    log.exception("a periodic check failed and goes on", thread=self._thread.name)
                failing = True
