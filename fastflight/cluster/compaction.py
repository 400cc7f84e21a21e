"""Compaction of shared recordings: converts the oldest messages of the stream to a Parquet part, and deletes them.

Any server does it, and may be killed at each step:

1. Claim the bucket of parts, which ends the upload of any other server. Delete what unfinished uploads left.
2. If the messages of the newest part are still there, verify it, and go on with step 6.
3. Read the rows of each log up to some message, as every reader does, into a store in a local folder. If any of them
   is damaged, stop: a message that one node has lost may come back with another one.
4. Convert the store to a part, which compares all rows. Upload its Parquet files, read them back and compare them.
5. Upload the index file, which makes the part valid, and read it back. From now on readers take the rows from the part,
   or from the messages: the same rows with the same numbers.
6. Store the next numbers of logs whose last message goes, and delete the messages.

A message of the bucket is acknowledged when a quorum has it on its disks. Each is accepted only after the one before
it (`part_bucket`), so a server that was overtaken cannot make a part valid, whenever its next message arrives. A valid
part is deleted by retention only, so whoever deletes messages may rely on it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import NamedTuple, Protocol

import pyarrow as pa
import structlog

from fastflight.cluster.part_bucket import Upload
from fastflight.cluster.replicated_statistics import Position, Recorded, position
from fastflight.cluster.stream import Bounds
from fastflight.errors import BusyError, StorageError
from fastflight.log import Missing, NumberedRows, Range, Store, Ticket
from fastflight.log.compacted import Compacted, index_name, parquet_names
from fastflight.log.compaction import compact_whole
from fastflight.log.disk import LocalDisk, read_whole

log = structlog.get_logger(__name__)


class CompactionLimits(NamedTuple):
    """A part is made of so many messages, or bytes of messages, whichever is less.

    Compaction begins when the stream has `due` times as much, so that the newest rows stay in messages: they are read
    most, and a writer whose last message is deleted has to look for the end of its log. Another server that has
    written to the bucket within `quiet_seconds` is at work there.
    """

    bytes: int = 64 * 1024 * 1024
    messages: int = 256 * 1024
    due: int = 2
    quiet_seconds: float = 150.0

    def are_due(self, bounds: Bounds) -> bool:
        """Whether a stream has enough messages for a part."""
        many = bounds.bytes >= self.due * self.bytes or bounds.messages >= self.due * self.messages
        return bounds.messages > 0 and many

    def last_message(self, bounds: Bounds) -> int:
        """Return the sequence number of the last message for the next part."""
        share = min(1.0, self.bytes / bounds.bytes, self.messages / bounds.messages)
        return bounds.first + max(int((bounds.last - bounds.first + 1) * share), 1) - 1


LIMITS = CompactionLimits()
# Parts that one call makes at most, so that retention has its turn.
MAX_PARTS = 4


class SharedLog(Protocol):
    """A log to read from."""

    @property
    def schema(self) -> pa.Schema: ...

    def read(self, wanted: Range = ...) -> Generator[NumberedRows | Missing, None, None]: ...


class SharedStore(Recorded, Protocol):
    """The store that is compacted."""

    def log(self, name: str) -> SharedLog: ...


class Compaction:
    """Compacts the recordings of one store. `ticks` is a monotonic clock. One thread at a time uses it."""

    def __init__(self, store: SharedStore, ticks: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._ticks = ticks
        # The last sequence number of the bucket, and when it was seen first.
        self._seen = 0, 0.0
        # The last message that this server has written to the bucket.
        self._own = 0

    def run(self, folder: Path, on_batch: Callable[[], object], limits: CompactionLimits) -> list[str]:
        """Do what `ReplicatedStore.compact` says."""
        stream, parts = self._store.stream, self._store.parts
        made: list[str] = []
        if not limits.are_due(self._store.call(stream.bounds())) or not self._is_quiet(limits.quiet_seconds):
            return made
        try:
            upload = self._store.call(parts.bucket.upload(self._seen[0]))
            for _ in range(MAX_PARTS):
                if not limits.are_due(bounds := self._store.call(stream.bounds())):
                    break
                if name := self._compact(bounds, upload, folder, on_batch, limits):
                    made.append(name)
                self._own = upload.last
        except BusyError:
            log.info("another server compacts the recordings")
        return made

    def _is_quiet(self, seconds: float) -> bool:
        """Whether no other server has written to the bucket for some time."""
        last = self._store.call(self._store.parts.bucket.bounds()).last
        if last != self._seen[0]:
            self._seen = last, self._ticks()
        return last in (0, self._own) or self._ticks() - self._seen[1] >= seconds

    def _compact(
        self, bounds: Bounds, upload: Upload, folder: Path, on_batch: Callable[[], object], limits: CompactionLimits
    ) -> str:
        """Make one part, or end what another server has begun. Return its name; empty if there are no rows."""
        store, parts = self._store, self._store.parts
        store.call(upload.claim())
        claim = upload.last
        for name in parts.unfinished():
            parts.disk.remove_before(name, claim)
        store.call(parts.bucket.remove_orphans(claim))
        newest = next(reversed(parts.all()), None)
        if newest is not None and newest.last_ordinal >= bounds.first:
            if not newest.is_whole():
                raise StorageError(
                    "a part is damaged in JetStream, and its messages are kept",
                    where=newest.name,
                    hint="Restore the bucket ff-parts from a node that has it",
                )
            end, made = newest.last_ordinal, newest.name
        else:
            end = limits.last_message(bounds)
            made = self._make(bounds.first, end, upload, folder, on_batch)
        if not store.call(store.stream.delete_before(end + 1)):
            raise BusyError("a recording was changed meanwhile", where="compaction", hint="This is tried again")
        return made

    def _make(self, first: int, end: int, upload: Upload, folder: Path, on_batch: Callable[[], object]) -> str:
        """Make a part of all rows in the messages from `first` to `end`. Return its name; empty if there are none."""
        store = self._store
        shutil.rmtree(folder, ignore_errors=True)
        created = store.call(store.stream.time_of(first)) / 1e6
        try:
            with Store(folder, clock=lambda: created) as local:
                tickets = [self._copy(name, first, end, local, on_batch) for name in store.call(store.stream.names())]
                for ticket in tickets:
                    if ticket is not None:
                        ticket.result()
                if not local.names():
                    return ""
                part = compact_whole(local, on_batch)
                self._upload(part, LocalDisk(folder), first, end, upload)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return index_name(first, end)

    def _copy(self, name: str, first: int, end: int, local: Store, on_batch: Callable[[], object]) -> Ticket | None:
        """Copy the rows of one log from messages up to `end`. Return the ticket of the last append, if there is one."""
        store = self._store
        after = store.call(store.stream.number_after(name, end))
        at = position(store, name)
        if after is None or _begins_damaged(at, first):
            raise _damaged(name)
        low = max(at.first, at.compacted)
        if low >= after:
            return None
        source = store.log(name)
        target = local.open(name, source.schema)
        following, paused_until = low, 0
        ticket: Ticket | None = None
        for item in source.read(Range(low, after - 1)):
            on_batch()
            if isinstance(item, Missing):
                if item.reason == "trimmed":
                    raise BusyError("rows were deleted meanwhile", where=name, hint="This is tried again")
                if item.reason == "damaged":
                    raise _damaged(name)
                if item.reason == "not recorded" and item.first <= max(following, paused_until):
                    paused_until = item.last + 1
                continue
            ticket = target.append(item.batch, first=item.first, paused_until=paused_until)
            if following == low:
                ticket = target.trim(low)  # the part begins here
            following = item.last + 1
        if following != after:
            raise _damaged(name)
        return ticket

    def _upload(self, part: Compacted, disk: LocalDisk, first: int, end: int, upload: Upload) -> None:
        """Upload the files of a part, the index last, and read each one back."""
        store = self._store
        names = [*parquet_names(first, end, len(part.names)), index_name(first, end)]
        for local, name in zip([*part.names, part.name], names, strict=True):
            data = read_whole(disk, local)
            store.call(upload.put(name, data))
            if read_whole(store.parts.disk, name) != data:
                raise StorageError("a file came back changed from JetStream", where=name, hint="The messages were kept")


def _begins_damaged(at: Position, first: int) -> bool:
    """Whether the message before the first one that can be read should still be in the stream."""
    return at.head is not None and not at.parts and at.head.previous >= first and at.head.begin > at.state.log.first


def _damaged(name: str) -> StorageError:
    return StorageError(
        "it has damaged messages, so that it and all later ones cannot be compacted",
        where=name,
        hint="Start the NATS nodes that are missing. Retention deletes the messages in the end",
    )
