"""The recordings of a server: one store, and a recorder for each recorded device.

A chunk of traffic has the same number live and in the recording. If a device was recorded before, its tap starts at a
number after the recording: the next multiple of a million that no server can have reached since. So numbers that an
earlier server used without storing their rows are not used again. The numbers that this skips are not reported as
losses.

Create `Recordings` before the first byte crosses a line, and close it after the event loops: traffic read until then is
stored.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from fastflight.concurrency import Shard
from fastflight.device import Device, Inventory
from fastflight.errors import FastFlightError, RequestError, StorageError, TransportError, UnknownName
from fastflight.gap import Why, microseconds, moment
from fastflight.log import Extent, Log, LogStatistics, Retention, Store
from fastflight.log.disk import LocalDisk
from fastflight.sources.growing import GrowingRecording
from fastflight.sources.recorded_rows import log_batch
from fastflight.sources.recorder import Recorder
from fastflight.sources.recording import Readable, ReadableStore
from fastflight.sources.rounds import Rounds
from fastflight.sources.tidying import Parse, Tidying
from fastflight.transport.chunk_buffer import Chunk

if TYPE_CHECKING:
    from fastflight.cluster.shared_recordings import SharedRecordings

log = structlog.get_logger(__name__)

# Traffic is on the disk at most this long after it was read; a power cut may lose that much. A thousand boards that
# print ten lines each second make a thousand appends in this time, for about ten syncs.
SYNC_MS = 1000
# The part of that which the store waits, at most, to sync the appends of many boards together.
STORE_SYNC_MS = 100.0
# A server uses numbers whose rows are not stored when it is killed, when the disk fails, or when it does not record.
# NUMBERS_PER_SECOND is more than ten times what any line can use in a second, as one read takes at least 10 us.
# SPARE_NUMBERS is the least distance, in case the clock was set back.
NUMBERS_PER_SECOND = 1_000_000
SPARE_NUMBERS = 65_536
# How often it is stored that boards which print nothing were recorded until then: a gap begins so much too early.
BEAT_SECONDS = 5.0
# Time limit for storing the last lot of a recorder; after it the disk counts as not answering.
END_SECONDS = 10.0
# The same for all recorders of a server that ends, and for the store. Service managers kill a process later than that.
CLOSE_SECONDS = 30.0

KEPT = "kept"
# In a cluster, of a recording whose server gives no answer; the reason follows.
UNKNOWN = "unknown"
HINT = "Start it with --recordings DIR, or --record DEVICE"


@dataclass(frozen=True, slots=True)
class RecordingStatus:
    """The stored rows of a recording, and whether rows are being added.

    `state`: `recording`, `recording failed: ` and the reason, or `kept` while no rows are added (a server of a cluster
    also says `unknown: ` and the reason, if the one that owns the device gives no answer). `lost`: the number of
    chunks that are missing from `first_seq` on; reading reports them as gaps. `failures`: tries that failed since this
    server began to record. `damage`: damaged places that reading has found since the server began.
    `gaps`: their number, until now, and `newest_gap`: `Gap.details` of the last that is no damage. `waiting`: in a
    cluster, the rows that this server has recorded and not handed over yet.
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
    waiting: int = 0
    gaps: int = 0
    newest_gap: dict[str, Any] | None = None


def rows_of(extents: Iterable[Extent]) -> int:
    """Return how many rows are in `extents`."""
    return sum(each.rows for each in extents)


def status_of(name: str, statistics: LogStatistics, recorder: Recorder | None = None) -> RecordingStatus:
    """Return the status of a recording, from its log and the recorder that writes it, if any."""
    return RecordingStatus(
        name,
        (recorder.state if recorder is not None else "") or KEPT,
        statistics.rows,
        statistics.bytes,
        statistics.first_seq,
        statistics.next_seq,
        moment(statistics.first_time),
        moment(statistics.last_time),
        statistics.lost,
        recorder.failures if recorder is not None else 0,
        statistics.damage,
        gaps=statistics.gaps,
        newest_gap=None if statistics.newest_gap is None else statistics.newest_gap.details(),
    )


@dataclass(slots=True)
class _RunningRecorder:
    """A recorder, and the future of its task."""

    recorder: Recorder
    running: concurrent.futures.Future[None]
    # None until `end` is called; done when all of the recorder's appends have succeeded or failed.
    ended: concurrent.futures.Future[None] | None = None

    def end(self) -> concurrent.futures.Future[None]:
        """End the recorder in a thread of its own, because the disk may not answer. Returns `ended`."""
        self.recorder.end()
        if self.ended is None:
            self.ended = _in_thread("recordings-end", self._finish)
        return self.ended

    def _finish(self) -> None:
        concurrent.futures.wait([self.running])
        self.recorder.finish()


def _in_thread(name: str, function: Callable[[], None]) -> concurrent.futures.Future[None]:
    """Call a function in a thread that does not keep the process alive, because the disk may not answer."""
    done: concurrent.futures.Future[None] = concurrent.futures.Future()

    def call() -> None:
        try:
            function()
            done.set_result(None)
        except BaseException as error:  # the edge of the thread: the future carries the error
            done.set_exception(error)

    threading.Thread(target=call, name=name, daemon=True).start()
    return done


class Recordings:
    """The store in `folder`, and the recorders that write to it.

    With `shared`, the store is only the buffer of this server, whose rows are handed over to the shared recordings.
    Reading is from those.
    """

    def __init__(
        self,
        folder: Path,
        inventory: Inventory,
        *,
        sync_ms: int = SYNC_MS,
        retention: Retention | None = None,
        holder: str = "",
        disk: LocalDisk | None = None,
        numbered: bool = False,
        shared: SharedRecordings | None = None,
    ) -> None:
        """Open the store. `BusyError` if another process writes to it, `StorageError` if the disk fails.

        `numbered`: `number_after` has already been called for the recordings in the store.
        """
        # The first conversion by Arrow imports pandas, which takes a second or two: do it here, not on an event loop.
        log_batch([Chunk(0, 0, "rx", b".")], {})
        store_ms = min(STORE_SYNC_MS, sync_ms / 2)
        self._gather_seconds = (sync_ms - store_ms) / 1000
        # Of the event loop of each shard.
        self._rounds: dict[Shard, Rounds] = {}
        self.store = Store(folder, sync_ms=store_ms, retention=retention, holder=holder, disk=disk)
        self._shared = shared
        self._logs: ReadableStore = self.store if shared is None else shared
        if not self.store.is_private:
            log.warning("other users may look into the folder of recordings", folder=str(folder), hint="chmod 700")
        self.folder = folder
        self._inventory = inventory
        self._recorders: dict[str, _RunningRecorder] = {}
        self._changing = threading.Lock()
        if not numbered:
            try:
                recorded = set(self.store.names())
                number_after(self.store, [each for each in inventory.devices() if each.name in recorded])
            except BaseException:
                self.store.close()  # its thread would outlive the failure
                raise
        if shared is not None:
            shared.take(self.store)
        # Parses the lines in new files of a recording. Set it when it is known how lines become rows.
        self.parse: Parse = lambda *_: None
        self._tidy = Tidying(self.store, shared, lambda name, rest: self.parse(name, rest))
        self._closing = threading.Event()
        self._beat = threading.Thread(target=self._keep_ends, name="recordings-beat", daemon=True)
        self._beat.start()

    def names(self) -> list[str]:
        """Return the names of all recordings, including those of devices that this server does not have."""
        return self._logs.names()

    def log(self, name: str) -> Readable:
        """Return the log of a recording. `UnknownName` if there is none."""
        with explain_missing(name, self._inventory):
            return self._with_open_gap(name, self._logs.log(name))

    def listed(self, name: str) -> Readable:
        """As `log`, for a name that `names` has just returned: in a cluster, NATS is not asked again."""
        found = self._logs.log(name) if self._shared is None else self._shared.listed(name)
        return self._with_open_gap(name, found)

    def _with_open_gap(self, name: str, found: Readable) -> Readable:
        running = self._recorders.get(name)
        return found if running is None else GrowingRecording(found, lambda: running.recorder.open_gap)

    def start(self, name: str) -> RecordingStatus:
        """As `record`, and return the status, for which a cluster's server asks NATS."""
        self.record(name)
        return self.status(name)

    def record(self, name: str) -> None:
        """Record a device from now on. Does nothing if it is recorded already.

        If an earlier `stop` failed, its recorder is ended first: `StorageError` if that fails again.
        """
        with self._changing:
            device = self._inventory.device(name)
            if name in self._recorders and self._recorders[name].ended is not None:
                self._end(name)
            if name not in self._recorders:
                device_log = self.store.open(name)
                rounds = self._rounds.setdefault(device.shard, Rounds(self.store, self._gather_seconds))
                recorder = Recorder(device, device_log, rounds, self._shared is not None)
                if device_log.end()[1] == Why.STOPPED:
                    self._mark_end({device_log.id: None})
                self._recorders[name] = _RunningRecorder(recorder, device.shard.submit(recorder.run()))

    def stop(self, name: str) -> RecordingStatus:
        """Stop recording a device, and store what was read until now. `StorageError` if the disk does not answer."""
        self._inventory.device(name)
        with self._changing:
            if name not in self._recorders:
                raise RequestError("it is not recorded", where=name, hint="See `recordings` for those that are")
            self._end(name)
        return self.status(name)

    def number(self, device: Device) -> None:
        """Number the traffic of a new device after its recording, if there is one. Call it before its line is read."""
        for logs in (self.store, *((self._shared,) if self._shared is not None else ())):
            if (recorded := logs.find(device.name)) is not None:
                _number_after(recorded, device)

    def forget(self, name: str, drains: bool = True) -> None:
        """As `stop`, for a device that has been removed. Does nothing if it is not recorded.

        In a cluster, its rows are handed over first if `drains`. That may take seconds, in which the device is still
        recorded. Several devices may be forgotten at the same time.
        """
        if name not in self._recorders:
            return
        is_handed_over = drains and self._shared is not None and self._shared.drain(name)
        with self._changing:
            if (running := self._recorders.get(name)) is None:
                return
            ended = running.end()
        _wait(name, ended)
        with self._changing:
            if self._recorders.get(name) is running:
                del self._recorders[name]
        self._finish(running, ended)
        if self._shared is not None and is_handed_over:
            self._shared.drain(name)  # the last rows, before another server goes on with the recording

    def status(self, name: str) -> RecordingStatus:
        """Return the status of a recording. `UnknownName` if there is none."""
        return self._status(name, self.log)

    def _status(self, name: str, log_of: Callable[[str], Readable]) -> RecordingStatus:
        running = self._recorders.get(name)
        recorder = running.recorder if running is not None else None
        try:
            statistics = log_of(name).statistics()
        except (UnknownName, TransportError):
            if recorder is None:
                raise
            statistics = self.store.log(name).statistics()  # nothing is handed over yet, or NATS is away
        status = status_of(name, statistics, recorder)
        return replace(status, waiting=rows_of(self._shared.waiting(name))) if self._shared is not None else status

    def waiting(self) -> dict[str, list[Extent]]:
        """Return the rows of each device that is recorded now which are still to be handed over to the cluster."""
        shared = self._shared
        return {} if shared is None else {name: shared.waiting(name) for name in list(self._recorders)}

    def statuses(self, *, recorded: bool = False) -> list[RecordingStatus]:
        """Return the status of all recordings, or of those to which this server adds rows."""
        names = self.names()
        return [self._status(name, self.listed) for name in names if not recorded or name in self._recorders]

    def _keep_ends(self) -> None:
        """Store to which time the recordings are complete, so that a gap is known after a crash."""
        while not self._closing.wait(BEAT_SECONDS):
            recorders = [each.recorder for each in list(self._recorders.values())]
            self._mark_end({each.log_id: microseconds(time) for each in recorders if (time := each.complete_to)})

    def _mark_end(self, ends: Mapping[int, int | None], why: str = Why.SERVER_DOWN) -> None:
        with contextlib.suppress(FastFlightError):  # the disk is full, or the store is closed
            if ends:
                self.store.mark_end(ends, why)

    def _end(self, name: str) -> None:
        """End a recorder and forget it, unless the disk does not answer. The caller holds `_changing`."""
        running = self._recorders[name]
        ended = running.end()
        _wait(name, ended)
        del self._recorders[name]
        self._finish(running, ended)
        if self._shared is not None:
            self._shared.drain(name)

    def _finish(self, running: _RunningRecorder, ended: concurrent.futures.Future[None]) -> None:
        """Store that a recorder was stopped, and raise what it has failed with."""
        ended.result()
        self._mark_end({running.recorder.log_id: microseconds(running.recorder.complete_to)}, Why.STOPPED)
        with contextlib.suppress(concurrent.futures.CancelledError):
            running.running.result()

    def close(self) -> None:
        """Store what was read, and close the store. Call it after the loops have ended, so that no more is read.

        If the disk does not answer within `CLOSE_SECONDS`, this is logged, and what it has not stored is lost.
        """
        closed = _in_thread("recordings-close", self._close)
        if concurrent.futures.wait([closed], CLOSE_SECONDS).done:
            closed.result()
        else:
            log.error("the disk does not answer: what was recorded last is not stored", folder=str(self.folder))

    def _close(self) -> None:
        self._closing.set()
        self._beat.join()
        self._tidy.close()
        with self._changing:
            for each in self._recorders.values():
                each.running.cancel()
                if each.ended is None:
                    each.recorder.finish()
                else:
                    concurrent.futures.wait([each.ended])
            self._recorders.clear()
        if self._shared is not None:
            self._shared.close()
        self.store.close()


def _wait(name: str, ended: concurrent.futures.Future[None]) -> None:
    """Wait until a recorder has ended. `StorageError` if that takes too long."""
    if not concurrent.futures.wait([ended], END_SECONDS).done:
        raise StorageError("the disk does not take what was recorded last", where=name, hint="Try again when it does")


@contextlib.contextmanager
def explain_missing(name: str, inventory: Inventory) -> Iterator[None]:
    """Replace `UnknownName` for a recording by one that says how to make it, if there is a device of that name."""
    try:
        yield
    except UnknownName:
        if name not in inventory.names():
            raise
        hint = f"Record it from now on: fastflight record {name}"
        raise UnknownName("nothing of it has been recorded", where=name, hint=hint) from None


class NoRecordings:
    """The recordings of a server that was started to keep none."""

    def names(self) -> list[str]:
        return []

    def log(self, name: str) -> Log:
        raise RequestError("this server keeps no recordings", where=name, hint=HINT)


def number_after(recordings: ReadableStore, devices: Iterable[Device]) -> None:
    """Number the traffic of recorded devices after their recordings. Call it before the first byte crosses a line."""
    for device in devices:
        _number_after(recordings.log(device.name), device)


def _number_after(recorded: Readable, device: Device) -> None:
    first = first_number(recorded.statistics(), time.time())
    device.tap.begin_at(max(first, device.tap.next_seq))


def first_number(recorded: LogStatistics, now: float) -> int:
    """Return the first number for traffic from `now` on (seconds since 1970), after what is `recorded`."""
    if not recorded.next_seq:
        return 0
    microseconds = int(now * NUMBERS_PER_SECOND)
    if recorded.last_time is None:  # all rows have been deleted by retention
        reached = max(recorded.next_seq + SPARE_NUMBERS, microseconds)
    else:
        reached = recorded.next_seq + max(SPARE_NUMBERS, microseconds - recorded.last_time)
    return -(-reached // NUMBERS_PER_SECOND) * NUMBERS_PER_SECOND
