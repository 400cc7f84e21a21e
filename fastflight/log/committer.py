"""Group commit: one thread that writes and syncs what all logs of a store append.

With `sync_ms` 0 it writes as soon as something waits; what comes in during a sync is the next group. Otherwise a group
is written `sync_ms` after its first append, or when enough waits. When a group fails, so does everything that was
numbered after it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from fastflight.errors import FastFlightError, Stopped, StorageError
from fastflight.log.commit import Commit
from fastflight.log.disk import failure
from fastflight.log.writer import Item, SegmentWriter, WrittenRecord

# Appending waits while this much waits for the disk: a second of a disk that takes 64 MB/s.
MAX_WAITING_BYTES = 64 * 1024 * 1024
# A group this large gains nothing by waiting for more.
EAGER_BYTES = 8 * 1024 * 1024


class Keeper(Protocol):
    """Whose rows they are. Both are called with `changed` held."""

    def landed(self, items: Sequence[Item], written: Sequence[WrittenRecord]) -> None:
        """A group is kept."""

    def fell(self) -> None:
        """Nothing of what was appended and has not landed is kept."""


class Committer:
    """The appends that wait, and the thread that carries them out. `changed` guards them."""

    def __init__(self, writer: SegmentWriter, keeper: Keeper, sync_ms: float, name: str) -> None:
        self.changed = threading.Condition()
        self.waiting_bytes = 0
        self.commits = 0
        self.failed = 0
        self._writer = writer
        self._keeper = keeper
        self._seconds = sync_ms / 1000
        self._items: list[Item] = []
        # The group that gathers, and the one that is being written.
        self._commit = Commit()
        self._running: Commit | None = None
        self._due = 0.0
        self._urgent = False
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=f"log-{name}")
        self._thread.start()

    @property
    def closing(self) -> bool:
        return self._closing

    def room(self) -> Commit | None:
        """None where there is room; else the commit after which to ask again. `changed` is held."""
        self.check()
        if self.waiting_bytes < MAX_WAITING_BYTES:
            return None
        return self._commit if self._items else self._running

    def check(self) -> None:
        """`Stopped` once it is closed."""
        if self._closing:
            raise Stopped("the recording log is closed", hint="Ask again when it is open")

    def put(self, items: Sequence[Item], *, urgent: bool = False) -> Commit:
        """Have items written, all or none. `changed` is held."""
        if not self._items:
            self._due = time.monotonic() + self._seconds
            self.changed.notify_all()
        self._items += items
        before = self.waiting_bytes
        self.waiting_bytes += sum(len(item.body) for item in items)
        if urgent or before < EAGER_BYTES <= self.waiting_bytes:
            self._urgent = self._urgent or urgent
            self.changed.notify_all()
        return self._commit

    def close(self) -> None:
        """Write what waits, and end the thread."""
        with self.changed:
            self._closing = True
            self.changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self.changed:
                while not self._ready():
                    self.changed.wait(self._patience())
                if not self._items:
                    return
                items, self._items = self._items, []
                commit, self._commit = self._commit, Commit()
                self._running, self._urgent = commit, False
            self._carry_out(items, commit)
            del items, commit  # or they stay until there is more

    def _ready(self) -> bool:
        if self._closing:
            return True
        return bool(self._items) and (
            self._urgent or self.waiting_bytes >= EAGER_BYTES or time.monotonic() >= self._due
        )

    def _patience(self) -> float | None:
        return max(self._due - time.monotonic(), 0) if self._items else None

    def _carry_out(self, items: list[Item], commit: Commit) -> None:
        error: Exception | None = None
        written: list[WrittenRecord] = []
        try:
            written = self._writer.write(items)
        except Exception as problem:  # the thread's edge: whoever waits must be told, whatever it was
            error = problem.with_traceback(None)  # its frames hold the group
        with self.changed:
            self._running = None
            if error is None:
                self.waiting_bytes -= sum(len(item.body) for item in items)
                self.commits += 1
                self._keeper.landed(items, written)
                later = None
            else:
                # What was numbered after these rows cannot be kept without them.
                later, self._commit = self._commit, Commit()
                self.failed += len(items) + len(self._items)
                self._items, self.waiting_bytes, self._urgent = [], 0, False
                self._keeper.fell()
            self.changed.notify_all()
        reason = _teller(error) if error is not None else None
        commit.finish(reason)
        if later is not None:
            later.finish(reason)


def _teller(error: Exception) -> Callable[[], FastFlightError]:
    if isinstance(error, OSError):
        return lambda: failure(error, "recording")
    return lambda: StorageError(f"recording failed: {type(error).__name__}", hint="This is a defect: report it")
