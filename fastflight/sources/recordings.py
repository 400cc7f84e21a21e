"""The recordings of a server: one store, a recorder for each device that is recorded, and what keeps the store tidy.

The numbers of a device's traffic are the same live and recorded. Where a device was recorded before, its tap goes on
after the recording: at a million that no server can have reached since, so that numbers which one gave and did not keep
are not given again by the next one. What is left out there is no loss, and is not told as one.

Make it before the first byte crosses a line; close it when the loops are: what was read until then is kept.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import structlog

from fastflight.device import Inventory
from fastflight.errors import RequestError, Stopped, StorageError
from fastflight.log import AsyncLog, Retention, Store, compact
from fastflight.log.batch_log import LogStatistics
from fastflight.log.disk import Disk
from fastflight.log.store import Log
from fastflight.log.viewer import LogReader
from fastflight.sources.recorded_rows import KEPT_SCHEMA, kept, place
from fastflight.sources.recorder import Recorder
from fastflight.transport.chunk_buffer import Chunk

log = structlog.get_logger(__name__)

# What was read is on the disk at most this long after: what a power cut may cost. A thousand boards that print ten
# lines each second are a thousand appends then, for one sync in ten of this.
SYNC_MS = 1000
# Of that, the store's share at most: appends of many boards come together in it, and are synced as one.
STORE_SYNC_MS = 100.0
# Room comes back, and old recordings become Parquet, when this has passed.
TIDY_SECONDS = 60.0
# Closed segments, of 64 MB or an hour each, that are worth compacting: the rows of a slow board come together.
COMPACT_SEGMENTS = 16
# Compacting shares the interpreter's lock with every line that is read: after so much processor time or more it rests
# for so many times as long. With a fifth of a core, what a thousand boards record in an hour is compacted in a quarter
# of one. It rests less the more segments wait, down to as long as it worked: what is recorded faster than compacted
# fills memory and disk.
WORK_SECONDS = 0.005
REST_PER_WORK = 4.0
LEAST_REST_PER_WORK = 1.0
# Servers give numbers that they do not keep: when killed, when the disk fails, when they are not told to record. No
# line brings a tenth of this in a second, as a read takes 10 us and more. UNKEPT is for a clock that was set back.
RUN = 1_000_000
UNKEPT = 65_536
# Damaged places that one line of the log names.
MAX_TOLD_PLACES = 10
# Ending a recorder is a wait for its last lot; longer, and the disk does not answer.
END_SECONDS = 10.0

KEPT = "kept"
HINT = "Start it with --recordings DIR, or --record DEVICE"


@dataclass(frozen=True, slots=True)
class RecordingStatus:
    """A recording: what is kept of it, and whether it goes on.

    `state`: `recording`, `recording failed: ` and why, or `kept` when nothing is added.

    `lost`: chunks that are missing from `first_seq` on, as gaps of a replay are. `failures`: tries that failed, since
    this server began to record.
    """

    name: str
    state: str
    rows: int
    bytes: int
    first_seq: int
    next_seq: int
    first_time: datetime | None
    last_time: datetime | None
    lost: int = 0
    failures: int = 0
    damage: tuple[str, ...] = ()


def status_of(name: str, there: LogStatistics, recorder: Recorder | None = None) -> RecordingStatus:
    """How a recording stands."""
    return RecordingStatus(
        name,
        (recorder.state if recorder is not None else "") or KEPT,
        there.rows,
        there.bytes,
        there.first_seq,
        there.next_seq,
        _utc(there.first_time),
        _utc(there.last_time),
        there.lost,
        recorder.failures if recorder is not None else 0,
        tuple(map(place, there.damage)),
    )


@dataclass(slots=True)
class _Kept:
    """A recorder, and what runs of it."""

    recorder: Recorder
    running: concurrent.futures.Future[None]
    # Once it was told to end: done when all that it had is kept, or known not to be.
    ended: concurrent.futures.Future[None] | None = None

    def end(self) -> concurrent.futures.Future[None]:
        """Have it end, in a thread: the disk may not answer."""
        self.recorder.end()
        if self.ended is None:
            ended: concurrent.futures.Future[None] = concurrent.futures.Future()
            threading.Thread(target=self._finish, args=(ended,), name="recordings-end", daemon=True).start()
            self.ended = ended
        return self.ended

    def _finish(self, ended: concurrent.futures.Future[None]) -> None:
        concurrent.futures.wait([self.running])
        try:
            self.recorder.finish()
        except BaseException as error:  # the thread's edge: whoever waits is told
            ended.set_exception(error)
        else:
            ended.set_result(None)


class Recordings:
    """What a server keeps in `folder`, and the recorders that do."""

    def __init__(
        self,
        folder: Path,
        inventory: Inventory,
        *,
        sync_ms: int = SYNC_MS,
        retention: Retention | None = None,
        holder: str = "",
        disk: Disk | None = None,
        numbered: bool = False,
    ) -> None:
        """Open the store. `BusyError` names who writes there already, `StorageError` says what the disk does not.

        `numbered`: `number_after` was called for what the store holds, before the first byte crossed a line.
        """
        # Arrow looks for pandas at its first conversion, which takes a second or two: not on a loop.
        kept([Chunk(0, 0, "rx", b".")], {})
        store_ms = min(STORE_SYNC_MS, sync_ms / 2)
        self._gather_seconds = (sync_ms - store_ms) / 1000
        self.store = Store(folder, sync_ms=store_ms, retention=retention, holder=holder, disk=disk)
        if not self.store.is_private:
            log.warning("other users may look into the folder of recordings", folder=str(folder), hint="chmod 700")
        damage = [place(each) for each in self.store.statistics().damage if not each.torn]
        if damage:
            log.warning("recordings are damaged", places=damage[:MAX_TOLD_PLACES], more=len(damage[MAX_TOLD_PLACES:]))
        self.folder = folder
        self._inventory = inventory
        self._recorders: dict[str, _Kept] = {}
        self._changing = threading.Lock()
        if not numbered:
            try:
                number_after(self.store, self.store.names(), inventory)
            except BaseException:
                self.store.close()  # its thread would outlive the failure
                raise
        self._tidy = Tidying(self.store)

    def names(self) -> list[str]:
        """All recordings, also of devices that this server does not have."""
        return self.store.names()

    def log(self, name: str) -> Log:
        """One recording; `UnknownName` where there is none."""
        return self.store.log(name)

    def start(self, name: str) -> RecordingStatus:
        """Record a device from now on; nothing changes where it is recorded already.

        One that could not be ended is ended before: `StorageError` where it still cannot be.
        """
        device = self._inventory.device(name)
        with self._changing:
            if name in self._recorders and self._recorders[name].ended is not None:
                self._end(name)
            if name not in self._recorders:
                kept_in = AsyncLog(self.store.open(name, KEPT_SCHEMA))
                recorder = Recorder(device, kept_in, self._gather_seconds)
                self._recorders[name] = _Kept(recorder, device.shard.submit(recorder.run()))
        return self.status(name)

    def stop(self, name: str) -> RecordingStatus:
        """Record a device no more; what was read until now is kept. `StorageError` where the disk does not answer."""
        self._inventory.device(name)
        with self._changing:
            if name not in self._recorders:
                raise RequestError("it is not recorded", where=name, hint="See `recordings` for those that are")
            self._end(name)
        return self.status(name)

    def status(self, name: str) -> RecordingStatus:
        """How a recording stands; `UnknownName` where there is none."""
        kept_here = self._recorders.get(name)
        return status_of(name, self.store.log(name).statistics(), kept_here.recorder if kept_here is not None else None)

    def statuses(self) -> list[RecordingStatus]:
        """All of them, by name."""
        return [self.status(name) for name in self.names()]

    def _end(self, name: str) -> None:
        """End a recorder; it stays where the disk keeps it from that. `_changing` is held."""
        kept_here = self._recorders[name]
        ended = kept_here.end()
        if not concurrent.futures.wait([ended], END_SECONDS).done:
            raise StorageError(
                "the disk does not take what was recorded last", where=name, hint="Try again when it does"
            )
        del self._recorders[name]
        ended.result()
        with contextlib.suppress(concurrent.futures.CancelledError):
            kept_here.running.result()

    def close(self) -> None:
        """Keep what was read, and end. After the loops, so that nothing is read any more."""
        self._tidy.close()
        with self._changing:
            for each in self._recorders.values():
                each.running.cancel()
                if each.ended is None:
                    each.recorder.finish()
                else:
                    concurrent.futures.wait([each.ended])
            self._recorders.clear()
        self.store.close()


class NoRecordings:
    """What a server keeps that was told to keep nothing."""

    def names(self) -> list[str]:
        return []

    def log(self, name: str) -> Log:
        raise RequestError("this server keeps no recordings", where=name, hint=HINT)


class Tidying:
    """Sweeping and compacting a store, now and then, in a thread of its own."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._over = threading.Event()
        self._rested = 0.0
        self._trouble = ""
        self._thread = threading.Thread(target=self._run, name="recordings-tidying")
        self._thread.start()

    def close(self) -> None:
        """End; what is being compacted stays as it is."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(TIDY_SECONDS):
            self.tidy()

    def tidy(self) -> None:
        """Let go of what the retention says, and compact what is worth it. A failure is told once, and tried again."""
        try:
            swept = self._store.sweep()
            many = len(self._store.closed_segments()) >= COMPACT_SEGMENTS
            made = compact(self._store, self._turn) if many else []
        except Stopped:
            return
        except Exception as error:  # the thread's edge: what fails now may work in a minute
            if str(error) != self._trouble:
                log.warning("recordings cannot be tidied", error=str(error), kind=type(error).__name__)
            self._trouble = str(error)
            return
        self._trouble = ""
        if swept or made:
            log.info("recordings tidied", swept=swept, compacted=len(made))

    def _turn(self) -> None:
        """Leave the others their share; `Stopped` when it is over."""
        # Not by the clock: where many want the interpreter's lock, most of that is waiting for it.
        worked = time.thread_time() - self._rested
        tired = worked >= WORK_SECONDS
        if self._over.wait(worked * self._rest_per_work()) if tired else self._over.is_set():
            raise Stopped("the recordings are closed")
        if tired:
            self._rested = time.thread_time()

    def _rest_per_work(self) -> float:
        waiting = max(len(self._store.closed_segments()), COMPACT_SEGMENTS)
        return max(REST_PER_WORK * COMPACT_SEGMENTS / waiting, LEAST_REST_PER_WORK)


class _Readable(Protocol):
    """Recordings of any kind."""

    def log(self, name: str) -> Log | LogReader: ...


def number_after(recordings: _Readable, names: Iterable[str], inventory: Inventory) -> None:
    """Have the traffic of recorded devices numbered after what is recorded. Before the first byte crosses a line."""
    recorded = set(names)
    for device in inventory.devices():
        if device.name in recorded:
            device.tap.begin_at(first_of_run(recordings.log(device.name).statistics(), time.time()))


def first_of_run(there: LogStatistics, now: float) -> int:
    """The first number of a run that begins `now`, after what is `there` of the runs before."""
    if not there.next_seq:
        return 0
    microseconds = int(now * RUN)
    if there.last_time is None:  # all of it was let go of
        reached = max(there.next_seq + UNKEPT, microseconds)
    else:
        reached = there.next_seq + max(UNKEPT, microseconds - there.last_time)
    return -(-reached // RUN) * RUN


def _utc(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else datetime.fromtimestamp(microseconds / 1e6, UTC)
