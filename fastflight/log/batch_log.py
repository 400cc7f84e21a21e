"""What a durable batch log is, whichever engine keeps it.

A store holds logs by name. A log is rows of one schema, numbered from 0 in the order they were appended; a batch of n
rows takes n numbers. Numbers are given once: rows that were lost before they came here, cut off by a trim, or damaged
on the disk leave a hole that reading reports as `Missing`. Every row has a time (the column `time`, us UTC), which
need not ascend.

`append` returns at once with a `Ticket`; the rows are acknowledged, that is kept whatever happens next, when the ticket
is done, and not before. A log has many readers and, at a time, one writer: the `expected` number makes a second one
notice, and a lease of `Owners` keeps it from trying. Ranges include both ends.

What is here can be carried by a replicated log as well (docs/decisions/0014-a-replicated-log.md); `store.Store` is the
embedded engine.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Appended:
    """Rows that are kept, by their numbers."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class NumberedRows:
    """Rows of a log; the first one has number `first`, the others follow."""

    first: int
    batch: pa.RecordBatch

    @property
    def last(self) -> int:
        return self.first + int(self.batch.num_rows) - 1


Reason = Literal["trimmed", "damaged", "never written", "not recorded"]


@dataclass(frozen=True, slots=True)
class Missing:
    """Numbers without rows: `first` to `last`. `where` is the place of damage, where there is one."""

    first: int
    last: int
    reason: Reason
    where: str = ""


@dataclass(frozen=True, slots=True)
class Range:
    """What to read. `from_time <= time < until_time`, us UTC; numbers from `from_seq` to `until_seq`, both included."""

    from_seq: int | None = None
    until_seq: int | None = None
    from_time: int | None = None
    until_time: int | None = None


EVERYTHING = Range()


@dataclass(frozen=True, slots=True)
class Retention:
    """What a store lets go of, oldest first; None keeps it all. Whole segments go: a little more may be kept."""

    max_seconds: float | None = None
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Damage:
    """A place in the store that cannot be read: bytes that were lost, or, at the end, a write that never finished."""

    file: str
    offset: int
    bytes: int
    torn: bool = False


@dataclass(frozen=True, slots=True)
class LogStatistics:
    """One log: acknowledged rows that are kept, their bytes as stored, their numbers and times (us UTC)."""

    rows: int
    bytes: int
    first_seq: int
    next_seq: int
    first_time: int | None
    last_time: int | None
    # Numbers without a row from `first_seq` on, as far as that is known without reading; pauses are not counted.
    lost: int = 0
    # Places in the files that hold it; whether they held rows of this log is told by reading.
    damage: tuple[Damage, ...] = ()


@dataclass(frozen=True, slots=True)
class Extent:
    """Numbers `first` to `last` of a log that are kept in one place, and so are best read in one go.

    `rows`: how many of them are there, damage aside; `bytes`: as they are stored. With a time range, at most as many.
    """

    first: int
    last: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """The whole store. `commits` counts syncs since it was opened, `failed` appends that were refused a place."""

    logs: int
    rows: int
    bytes: int
    parts: int
    appends: int
    commits: int
    failed: int
    waiting_bytes: int
    damage: tuple[Damage, ...]


class Ticket(Protocol):
    """An append on its way to the disk. Drop it where nobody waits for it: it is carried out all the same."""

    @property
    def first(self) -> int:
        """The number that the first row has if the append succeeds."""

    @property
    def last(self) -> int:
        """The number of the last row."""

    @property
    def done(self) -> bool:
        """Whether `result` returns, or raises, at once."""

    def result(self, timeout: float | None = None) -> Appended:
        """Wait until the rows are kept. `StorageError` where they are not, `TimeoutError` where it is not known yet."""

    def __await__(self) -> Generator[Any, None, Appended]:
        """As `result`, on any event loop. Cancelling gives up the waiting, not the append."""


class BatchLog(Protocol):
    """One log of a store."""

    @property
    def name(self) -> str:
        """Its name in the store."""

    @property
    def schema(self) -> pa.Schema:
        """What its batches have."""

    @property
    def next_seq(self) -> int:
        """The number that the next appended row gets."""

    def append(
        self, batch: pa.RecordBatch, *, expected: int | None = None, first: int | None = None, paused_until: int = 0
    ) -> Ticket:
        """Keep `batch`. Waits only while too much waits for the disk already.

        `expected`: the number that is thought to be next; `SequenceConflict` where it is not, and nothing is kept.
        `first`: the number of the first row, where it is not the next: those between are reported as never written,
        and count as lost. Those below `paused_until` are reported as not recorded, and do not.
        `DataError` for a batch that does not fit.
        """

    def read(self, wanted: Range = EVERYTHING) -> Iterator[NumberedRows | Missing]:
        """What is acknowledged, in the order of its numbers, up to where it ended when reading began."""

    def extents(self, wanted: Range = EVERYTHING) -> list[Extent]:
        """Where the rows of a range are kept now, in the order of their numbers."""

    def trim(self, before_seq: int) -> Ticket:
        """Let go of the rows before a number. They are not served again; their room comes back by and by."""

    def statistics(self) -> LogStatistics:
        """What is kept now."""


class AsyncBatchLog(Protocol):
    """The same on an event loop, which it does not hold up: `append` awaits room, and the ticket the disk."""

    @property
    def name(self) -> str: ...

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def next_seq(self) -> int: ...

    async def append(
        self, batch: pa.RecordBatch, *, expected: int | None = None, first: int | None = None, paused_until: int = 0
    ) -> Ticket: ...

    def read(self, wanted: Range = EVERYTHING) -> AsyncIterator[NumberedRows | Missing]: ...

    async def extents(self, wanted: Range = EVERYTHING) -> list[Extent]: ...

    async def trim(self, before_seq: int) -> Ticket: ...

    async def statistics(self) -> LogStatistics: ...


class BatchStore(Protocol):
    """Logs by name."""

    def names(self) -> list[str]:
        """The logs that there are, sorted."""

    def open(self, name: str, schema: pa.Schema) -> BatchLog:
        """A log to append to, made if it is not there. `RequestError` where it has another schema."""

    def log(self, name: str) -> BatchLog:
        """A log that is there; `UnknownName` where it is not."""

    def statistics(self) -> StoreStatistics:
        """What is kept, waiting and broken."""

    def close(self) -> None:
        """Keep what waits, and end. Appending raises `Stopped` from then on."""


@dataclass(frozen=True, slots=True)
class Lease:
    """`owner` has `device` until `until` (seconds since 1970), if it is not renewed.

    `token` is larger than that of any lease of the device before it, and may grow when it is renewed: whoever remembers
    the largest one seen refuses work that comes under a smaller one.
    """

    device: str
    owner: str
    token: int
    until: float


class Owners(Protocol):
    """Who has which device. Leases end by themselves, so that a holder that died frees what it held."""

    def acquire(self, device: str, owner: str, seconds: float) -> Lease:
        """Become the owner. `BusyError` names whoever is."""

    def renew(self, lease: Lease, seconds: float) -> Lease:
        """Go on owning. `BusyError` where the lease ran out and somebody else took the device."""

    def release(self, lease: Lease) -> None:
        """Stop owning. Does nothing where the lease is no longer the newest."""

    def holder(self, device: str) -> Lease | None:
        """The lease that holds now; None where the device is free."""
