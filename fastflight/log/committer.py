"""Group commit: one thread writes and syncs the appends of all logs of a store.

All appends that wait at one moment, of all logs, share one `Commit`: one write, one sync, and one wake-up for each
event loop, whether they come from one board or a thousand. With `sync_ms` 0 the thread writes as soon as an append
waits; the appends that arrive during a sync form the next group. Otherwise it writes a group `sync_ms` after its first
append, or earlier when `EAGER_BYTES` wait. When a group fails, all appends that were numbered after it fail too.

The states of logs that a sweep writes again are groups of their own, which come first. On a full disk they are written
into the room of the reserve.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol

from fastflight.errors import FastFlightError, Stopped, StorageError
from fastflight.log.disk import failure
from fastflight.log.values import Appended
from fastflight.log.writer import NewRecord, SegmentWriter, WrittenRecord

# `append` waits while this much data waits for the disk: one second for a disk that writes 64 MB/s.
MAX_WAITING_BYTES = 64 * 1024 * 1024
# A group of this size gains nothing from waiting for more.
EAGER_BYTES = 8 * 1024 * 1024


class Commit:
    """A group of appends that succeed or fail together. The committer calls `finish` once."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._loops: dict[asyncio.AbstractEventLoop, asyncio.Event] = {}
        self._make_error: Callable[[], FastFlightError] | None = None

    @property
    def done(self) -> bool:
        return self._ended.is_set()

    def finish(self, make_error: Callable[[], FastFlightError] | None = None) -> None:
        """End the commit and wake its waiters. If it has failed, `make_error` makes an error for each of them."""
        self._make_error = make_error
        with self._lock:
            self._ended.set()
            waiting, self._loops = self._loops, {}
        for loop, event in waiting.items():
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits there
                loop.call_soon_threadsafe(event.set)

    def check(self) -> None:
        """Raise the error if the commit has failed."""
        if self._make_error is not None:
            raise self._make_error()

    def wait(self, timeout: float | None) -> bool:
        return self._ended.wait(timeout)

    async def await_end(self) -> None:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._ended.is_set():
                return
            event = self._loops.get(loop)
            if event is None:
                event = self._loops[loop] = asyncio.Event()
        await event.wait()


class Ticket:
    """An append that may still wait for the disk. The append happens even if nobody waits for its ticket."""

    __slots__ = ("_commit", "first", "last")

    def __init__(self, first: int, last: int, commit: Commit) -> None:
        # The numbers that the first and the last row get if the append succeeds.
        self.first = first
        self.last = last
        self._commit = commit

    @property
    def done(self) -> bool:
        """Whether the append has ended, so that `result` returns or raises at once."""
        return self._commit.done

    def result(self, timeout: float | None = None) -> Appended:
        """Wait until the rows are durable.

        Raises `StorageError` if the append failed, `TimeoutError` if it has not ended after `timeout` seconds.
        """
        if not self._commit.wait(timeout):
            raise TimeoutError("the disk has not answered yet")
        self._commit.check()
        return Appended(self.first, self.last)

    def __await__(self) -> Generator[Any, None, Appended]:
        """As `result`, on any event loop. Cancelling ends the wait, not the append."""
        if not self._commit.done:
            yield from self._commit.await_end().__await__()
        self._commit.check()
        return Appended(self.first, self.last)


class CommitListener(Protocol):
    """Receives the outcome of each group. Both methods are called with `changed` held."""

    def group_committed(self, records: Sequence[NewRecord], written: Sequence[WrittenRecord]) -> None:
        """A group is durable."""

    def group_failed(self) -> None:
        """A group has failed, and with it all appends that are not durable."""


class Committer:
    """The appends that wait, and the thread that writes them. `changed` guards both."""

    def __init__(self, writer: SegmentWriter, listener: CommitListener, sync_ms: float, name: str) -> None:
        self.changed = threading.Condition()
        self.waiting_bytes = 0
        self.commits = 0
        self.failed = 0
        self._writer = writer
        self._listener = listener
        self._seconds = sync_ms / 1000
        self._records: list[NewRecord] = []
        # The group that new appends join, and the group that is being written.
        self._commit = Commit()
        self._running: Commit | None = None
        self._states: deque[tuple[list[NewRecord], Commit]] = deque()
        self._due = 0.0
        self._closing = False
        # `close` waits for it. A disk that never answers must not keep the process for ever.
        self._thread = threading.Thread(target=self._run, name=f"log-{name}", daemon=True)
        self._thread.start()

    @property
    def closing(self) -> bool:
        return self._closing

    def room(self) -> Commit | None:
        """Return None if there is room, else the commit to wait for before the next try. `changed` must be held."""
        self.check()
        if self.waiting_bytes < MAX_WAITING_BYTES:
            return None
        return self._commit if self._records else self._running

    def check(self) -> None:
        """Raise `Stopped` if the committer is closed."""
        if self._closing:
            raise Stopped("the recording log is closed", hint="Ask again when it is open")

    def put(self, records: Sequence[NewRecord]) -> Commit:
        """Queue records to be written, all or none, and return their commit. `changed` must be held."""
        if not self._records:
            self._due = time.monotonic() + self._seconds
            self.changed.notify_all()
        self._records += records
        before = self.waiting_bytes
        self.waiting_bytes += sum(len(record.body) for record in records)
        if before < EAGER_BYTES <= self.waiting_bytes:
            self.changed.notify_all()
        return self._commit

    def put_states(self, records: Sequence[NewRecord]) -> Commit:
        """Queue records without rows, to be written at once, and return their commit. `changed` must be held."""
        commit = Commit()
        self._states.append((list(records), commit))
        self.changed.notify_all()
        return commit

    def close(self) -> None:
        """Write the records that wait, and end the thread."""
        with self.changed:
            self._closing = True
            self.changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self.changed:
                while not self._ready():
                    self.changed.wait(self._seconds_until_due())
                if states := bool(self._states):
                    records, commit = self._states.popleft()
                elif self._records:
                    records, self._records = self._records, []
                    commit, self._commit = self._commit, Commit()
                else:
                    return
                self._running = commit
            self._write_group(records, commit, states)
            del records, commit  # else they stay in memory until the next group

    def _ready(self) -> bool:
        if self._closing or self._states:
            return True
        return bool(self._records) and (self.waiting_bytes >= EAGER_BYTES or time.monotonic() >= self._due)

    def _seconds_until_due(self) -> float | None:
        return max(self._due - time.monotonic(), 0) if self._records else None

    def _write_group(self, records: list[NewRecord], commit: Commit, states: bool) -> None:
        error: Exception | None = None
        written: list[WrittenRecord] = []
        try:
            written = self._writer.write(records, from_reserve=states)
        except Exception as problem:  # the thread's edge: waiters must get an error, whatever went wrong
            error = problem.with_traceback(None)  # the frames of a traceback would keep the group in memory
        with self.changed:
            self._running = None
            if error is None:
                self.waiting_bytes -= sum(len(record.body) for record in records)
                self.commits += 1
                self._listener.group_committed(records, written)
                later = None
            elif states:
                later = None
            else:
                # Appends that were numbered after these rows cannot be stored without them.
                later, self._commit = self._commit, Commit()
                self.failed += len(records) + len(self._records)
                self._records, self.waiting_bytes, self._urgent = [], 0, False
                self._listener.group_failed()
            self.changed.notify_all()
        make_error = _error_factory(error) if error is not None else None
        commit.finish(make_error)
        if later is not None:
            later.finish(make_error)


def _error_factory(error: Exception) -> Callable[[], FastFlightError]:
    if isinstance(error, OSError):
        return lambda: failure(error, "recording")
    return lambda: StorageError(f"recording failed: {type(error).__name__}", hint="This is a defect: report it")
