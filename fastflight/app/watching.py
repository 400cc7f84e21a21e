"""Watches what the devices of a server print, once a second, in one thread: crashes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from fastflight.concurrency.threads import PeriodicThread
from fastflight.device import Inventory
from fastflight.sources import Recordings
from fastflight.sources.crashes import Crashes
from fastflight.sources.kept_values import KeptValues

POLL_SECONDS = 1.0


class Watching:
    """Create it before devices are used, `start` it when the server is complete, and `close` it before they end."""

    def __init__(
        self, inventory: Inventory, recordings: Recordings | None, clock: Callable[[], int] = time.time_ns
    ) -> None:
        """`clock` returns nanoseconds since 1970."""
        self._clock = clock
        self._recordings = recordings
        self._kept = KeptValues(self._folder)
        self.crashes = Crashes(inventory, self._kept)
        self._thread = PeriodicThread(self.poll, POLL_SECONDS, "watching")

    def start(self) -> None:
        """Begin to watch."""
        self.crashes.load()
        self._thread.start()

    def poll(self) -> None:
        """Look at what has come since the last call."""
        self.crashes.poll(self._clock())

    def close(self) -> None:
        """End, after a last look."""
        self._thread.close()
        self.poll()
        self._kept.close()

    def _folder(self) -> Path | None:
        return self._recordings.folder if self._recordings is not None and self._recordings.is_open else None
