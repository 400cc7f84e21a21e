"""The recordings of a server: one store, and a recorder for each recorded device.

Create `Recordings` before the first byte crosses a line, and close it after the event loops: traffic read until then is
stored.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from fastflight.concurrency import Shard
from fastflight.device import Device, Inventory
from fastflight.errors import (
    BusyError,
    FastFlightError,
    RequestError,
    StorageError,
    TransportError,
    UnknownName,
    nearest,
)
from fastflight.gap import Why, microseconds
from fastflight.log import Extent, Log, Retention, Store, StoreReader
from fastflight.log.disk import LocalDisk
from fastflight.sources.growing import GrowingRecording
from fastflight.sources.numbering import number_after
from fastflight.sources.recorded_rows import log_batch
from fastflight.sources.recorder import Recorder
from fastflight.sources.recording import Readable, ReadableStore
from fastflight.sources.recording_status import RecordingStatus, rows_of, status_of
from fastflight.sources.rounds import Rounds
from fastflight.sources.tidying import Look, Parse, Tidying
from fastflight.transport.chunk_buffer import Chunk

if TYPE_CHECKING:
    from fastflight.cluster.shared_recordings import SharedRecordings

log = structlog.get_logger(__name__)

# Traffic is on the disk at most this long after it was read; a power cut may lose that much. A thousand boards that
# print ten lines each second make a thousand appends in this time, for about ten syncs.
SYNC_MS = 1000
# The part of that which the store waits, at most, to sync the appends of many boards together.
STORE_SYNC_MS = 100.0
# How often it is stored that boards which print nothing were recorded until then: a gap begins so much too early.
BEAT_SECONDS = 5.0
# Time limit for storing the last rows of a recorder; after it the disk counts as not answering.
END_SECONDS = 10.0
# The same for all recorders of a server that ends, and for the store. Service managers kill a process later than that.
CLOSE_SECONDS = 30.0

OTHER_FOLDER = "start this server with --recordings DIR for a folder of its own"
HINT = "Start it with --recordings DIR, or --record DEVICE"


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

    With `on_demand`, the store is opened when a device is first recorded. Until then nothing is written, no lock is
    taken and no folder is made; recordings that the folder held when the server started can be read.

    With `shared`, the store is only the buffer of this server, whose rows are handed over to the shared recordings.
    Reading is from those.
    """

    _logs: ReadableStore
    _tidy: Tidying
    _beat: threading.Thread

    def __init__(
        self,
        folder: Path,
        inventory: Inventory,
        *,
        sync_ms: int = SYNC_MS,
        retention: Retention | None = None,
        holder: str = "",
        disk: LocalDisk | None = None,
        on_demand: bool = False,
        shared: SharedRecordings | None = None,
    ) -> None:
        """Open the store. `BusyError` if another process writes to it, `StorageError` if the disk fails."""
        store_ms = min(STORE_SYNC_MS, sync_ms / 2)
        self._new_store = partial(Store, folder, sync_ms=store_ms, retention=retention, holder=holder, disk=disk)
        self._gather_seconds = (sync_ms - store_ms) / 1000
        # Of the event loop of each shard.
        self._rounds: dict[Shard, Rounds] = {}
        self._store: Store | None = None
        self._shared = shared
        self.folder = folder
        self._inventory = inventory
        self._recorders: dict[str, _RunningRecorder] = {}
        self._changing = threading.Lock()
        self._opening = threading.Lock()
        # Parses the lines in new files of a recording. Set it when it is known how lines become rows.
        self.parse: Parse = lambda *_: None
        # Reads the first lines of a recording, so that a listing need not. Set it as `parse`.
        self.look: Look = lambda _: None
        self._closing = threading.Event()
        # Until the store is opened: the recordings in the folder, and the next number of each when the server started.
        self._reader: ReadableStore = NoRecordings()
        self._ends: dict[str, int] = {}
        # Recordings to which another server has added rows since then.
        self._continued: set[str] = set()
        self._on_demand = on_demand
        if on_demand:
            self._look()
        else:
            self._open()

    @property
    def is_open(self) -> bool:
        """Whether the store is open for writing."""
        return self._store is not None

    @property
    def store(self) -> Store:
        """The store, if it is open."""
        assert self._store is not None
        return self._store

    def _look(self) -> None:
        """Find the recordings in the folder, and number new traffic of their devices after them."""
        try:
            if self.folder.is_dir():
                reader = StoreReader(self.folder)
                ends = {name: reader.log(name).statistics().next_seq for name in reader.names()}
                self._number(reader, ends)
                self._reader, self._ends = reader, ends
        except (FastFlightError, OSError) as error:
            log.warning("recordings in the default folder cannot be read", folder=str(self.folder), error=str(error))

    def _open(self) -> None:
        # The first conversion by Arrow imports pandas, which takes a second or two: do it here, not on an event loop.
        log_batch([Chunk(0, 0, "rx", b".")])
        store = self._new_store()
        if not store.is_private:
            log.warning("other users may look into the folder of recordings", folder=str(self.folder), hint="chmod 700")
        try:
            if self._on_demand:
                ends = {name: store.log(name).next_seq for name in store.names()}
                self._continued = {name for name, end in ends.items() if end != self._ends.get(name, 0)}
            else:
                self._number(store, store.names())
        except BaseException:
            store.close()  # its thread would outlive the failure
            raise
        if self._shared is not None:
            self._shared.take(store)
        self._logs = store if self._shared is None else self._shared
        self._tidy = Tidying(
            store, self._shared, lambda name, rest: self.parse(name, rest), lambda name: self.look(name)
        )
        self._beat = threading.Thread(target=self._keep_ends, name="recordings-beat", daemon=True)
        self._store = store
        self._beat.start()

    def _open_on_demand(self) -> None:
        """Open the store in the default folder, unless it is open.

        `BusyError` if another server writes to the folder, `StorageError` if it cannot be opened.
        """
        with self._opening:
            if self._store is not None:
                return
            try:
                self._open()
            except BusyError as error:
                raise BusyError(
                    f"{error.holder} writes the default folder of recordings",
                    holder=error.holder,
                    hint=f"End it, record there, or {OTHER_FOLDER}",
                ) from error
            except StorageError as error:
                raise StorageError(error.what, hint=f"Mend that, or {OTHER_FOLDER}") from error

    def _number(self, recorded: ReadableStore, names: Collection[str]) -> None:
        """Number the traffic of recorded devices after their recordings, before the first byte crosses a line."""
        for device in self._inventory.devices():
            if device.name in names:
                number_after(recorded.log(device.name), device)

    def names(self) -> list[str]:
        """Return the names of all recordings, including those of devices that this server does not have."""
        return list(self._ends) if self._store is None else self._logs.names()

    def log(self, name: str) -> Readable:
        """Return the log of a recording. `UnknownName` if there is none."""
        with self._explain_missing(name):
            return self._with_open_gap(name, self._stored(name))

    def listed(self, name: str) -> Readable:
        """As `log`, for a name that `names` has just returned: in a cluster, NATS is not asked again."""
        found = self._stored(name) if self._shared is None else self._shared.listed(name)
        return self._with_open_gap(name, found)

    def _stored(self, name: str) -> Readable:
        if self._store is not None:
            return self._logs.log(name)
        if name not in self._ends:
            raise UnknownName("no such recording", where=name, hint=nearest(name, self._ends))
        return self._reader.log(name)

    @contextlib.contextmanager
    def _explain_missing(self, name: str) -> Iterator[None]:
        """Replace `UnknownName` by one that says how to make the recording, if there is a device of that name."""
        try:
            yield
        except UnknownName:
            if name not in self._inventory.names():
                raise
            hint = f"Record it from now on: fastflight record {name}"
            raise UnknownName("nothing of it has been recorded", where=name, hint=hint) from None

    def _with_open_gap(self, name: str, found: Readable) -> Readable:
        running = self._recorders.get(name)
        return found if running is None else GrowingRecording(found, lambda: running.recorder.open_gap)

    def start(self, name: str) -> RecordingStatus:
        """As `record`, and return the status, for which a cluster's server asks NATS."""
        self.record(name)
        return self.status(name)

    def record(self, name: str) -> None:
        """Record a device from now on. Does nothing if it is recorded already.

        If an earlier `stop` failed, its recorder is ended first: `StorageError` if that fails again. Errors are those
        of opening the store as well, and `RequestError` if another server has recorded the device meanwhile.
        """
        device = self._inventory.device(name)
        self._open_on_demand()
        if name in self._continued:
            raise RequestError(
                "another server has recorded it since this one started",
                where=name,
                hint="Start this server again: its numbers go on after that recording",
            )
        with self._changing:
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
        if self._store is None:
            if device.name in self._ends:
                self._ends[device.name] = self._reader.log(device.name).statistics().next_seq
                number_after(self._reader.log(device.name), device)
            return
        for logs in (self._store, *((self._shared,) if self._shared is not None else ())):
            if (recorded := logs.find(device.name)) is not None:
                number_after(recorded, device)

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

    def recorded(self, names: Iterable[str]) -> list[str]:
        """Return those of `names` to which this server adds rows."""
        return [name for name in names if name in self._recorders]

    def statuses(self, names: Iterable[str] | None = None) -> list[RecordingStatus]:
        """Return the status of all recordings, or of those with these names."""
        found = []
        for name in self.names() if names is None else names:
            with contextlib.suppress(UnknownName):  # it was removed meanwhile
                found.append(self._status(name, self.listed))
        return found

    def _keep_ends(self) -> None:
        """Store to which time the recordings are complete, so that a gap is known after a crash."""
        while not self._closing.wait(BEAT_SECONDS):
            recorders = [each.recorder for each in list(self._recorders.values())]
            self._mark_end({each.log.id: microseconds(time) for each in recorders if (time := each.complete_to)})

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
        self._mark_end({running.recorder.log.id: microseconds(running.recorder.complete_to)}, Why.STOPPED)
        with contextlib.suppress(concurrent.futures.CancelledError):
            running.running.result()

    def close(self) -> None:
        """Store what was read, and close the store. Call it after the loops have ended, so that no more is read.

        If the disk does not answer within `CLOSE_SECONDS`, this is logged, and what it has not stored is lost.
        """
        if self._store is None:
            return
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


class NoRecordings:
    """The recordings of a server that was started to keep none."""

    def names(self) -> list[str]:
        return []

    def log(self, name: str) -> Log:
        raise RequestError("this server keeps no recordings", where=name, hint=HINT)
