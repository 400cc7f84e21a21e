"""The interface of a durable batch log, for any storage engine.

A store holds logs by name. A log holds rows of one schema, numbered from 0 in the order of appending; a batch of n
rows takes n numbers. Each number is used once. Rows that were lost before the append, deleted by a trim, or damaged on
the disk leave a hole, which reading reports as `Missing`. Every row has a time (the column `time`, us UTC); times need
not ascend.

`append` returns a `Ticket` at once. The rows are durable when the ticket is done, and not before. A log has many
readers but only one writer at a time: a second writer notices the first one by the `expected` number. Ranges of numbers
include both ends.

A replicated log can implement this interface as well (docs/decisions/0014-a-replicated-log.md); `store.Store` is the
embedded engine.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Appended:
    """The numbers of the first and the last row that an append has made durable."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class NumberedRows:
    """Rows of a log. The first row has the number `first`, the others follow without a hole."""

    first: int
    batch: pa.RecordBatch

    @property
    def last(self) -> int:
        return self.first + int(self.batch.num_rows) - 1


Reason = Literal["trimmed", "damaged", "never written", "not recorded"]


@dataclass(frozen=True, slots=True)
class Missing:
    """Numbers without rows: `first` to `last`, both included. `where` names the damaged place, if there is one."""

    first: int
    last: int
    reason: Reason
    where: str = ""


@dataclass(frozen=True, slots=True)
class Range:
    """The rows to read: `from_time <= time < until_time` in us UTC, and `from_seq <= number <= until_seq`.

    None means no limit.
    """

    from_seq: int | None = None
    until_seq: int | None = None
    from_time: int | None = None
    until_time: int | None = None


EVERYTHING = Range()


@dataclass(frozen=True, slots=True)
class Retention:
    """Limits of age and size, above which a store deletes its oldest rows; None means no limit.

    A store deletes whole segments, so it may keep a little more than the limits.
    """

    max_seconds: float | None = None
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Damage:
    """A place in the store's files that cannot be read: damaged bytes, or (`torn`) an unfinished write at the end."""

    file: str
    offset: int
    bytes: int
    torn: bool = False


@dataclass(frozen=True, slots=True)
class LogStatistics:
    """One log: its durable rows, their stored bytes, their numbers and their times (us UTC)."""

    rows: int
    bytes: int
    first_seq: int
    next_seq: int
    first_time: int | None
    last_time: int | None
    # Numbers without a row from `first_seq` on, as far as this is known without reading; pauses are not counted.
    lost: int = 0
    # Damaged places in the files that hold this log. Only reading shows whether they held rows of it.
    damage: tuple[Damage, ...] = ()


@dataclass(frozen=True, slots=True)
class Extent:
    """Numbers `first` to `last` of a log that are stored in one file or group of files: read them in one pass.

    `rows` is the number of rows in it, `bytes` their stored size; both ignore damage. With a time range, both are
    upper limits.
    """

    first: int
    last: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """The whole store. `commits` counts the groups written since it was opened, `failed` the records that failed."""

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
    """An append that may still wait for the disk. The append happens even if nobody waits for its ticket."""

    @property
    def first(self) -> int:
        """The number that the first row gets if the append succeeds."""

    @property
    def last(self) -> int:
        """The number of the last row."""

    @property
    def done(self) -> bool:
        """Whether the append has ended, so that `result` returns or raises at once."""

    def result(self, timeout: float | None = None) -> Appended:
        """Wait until the rows are durable.

        Raises `StorageError` if the append failed, `TimeoutError` if it has not ended after `timeout` seconds.
        """

    def __await__(self) -> Generator[Any, None, Appended]:
        """As `result`, on any event loop. Cancelling ends the wait, not the append."""


class BatchLog(Protocol):
    """One log of a store."""

    @property
    def name(self) -> str:
        """The name of the log in its store."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of its batches."""

    @property
    def next_seq(self) -> int:
        """The number that the next appended row gets."""

    def append(
        self, batch: pa.RecordBatch, *, expected: int | None = None, first: int | None = None, paused_until: int = 0
    ) -> Ticket:
        """Append `batch`, and return a ticket. Waits only while too much data already waits for the disk.

        `expected` is the number that the caller takes for `next_seq`. `first` is the number of the first row, if it
        is larger than `next_seq`: the numbers left out are reported as "never written", and count as lost. Those of
        them below `paused_until` are reported as "not recorded", and do not count as lost.

        Raises `SequenceConflict`, and appends nothing, if `expected` is not `next_seq` or `first` is below it, and
        `DataError` for a batch that does not fit the log.
        """

    async def aappend(
        self, batch: pa.RecordBatch, *, expected: int | None = None, first: int | None = None, paused_until: int = 0
    ) -> Ticket:
        """As `append`, on an event loop, which goes on while this waits."""

    def read(self, wanted: Range = EVERYTHING) -> Iterator[NumberedRows | Missing]:
        """Yield the durable rows in the order of their numbers, up to the end of the log when reading began."""

    def extents(self, wanted: Range = EVERYTHING) -> list[Extent]:
        """Return where the rows of a range are stored now, in the order of their numbers."""

    def trim(self, before_seq: int) -> Ticket:
        """Delete the rows before a number. Reading does not return them again; their disk space is freed later."""

    def statistics(self) -> LogStatistics:
        """Return the present statistics of the log."""


class BatchStore(Protocol):
    """Logs by name."""

    def names(self) -> list[str]:
        """Return the names of all logs, sorted."""

    def open(self, name: str, schema: pa.Schema) -> BatchLog:
        """Return a log to append to, and create it if it does not exist.

        Raises `RequestError` if it has another schema.
        """

    def log(self, name: str) -> BatchLog:
        """Return an existing log. Raises `UnknownName` if there is none of that name."""

    def statistics(self) -> StoreStatistics:
        """Return the present statistics of the store."""

    def close(self) -> None:
        """Write the appends that wait, and close the store. `append` raises `Stopped` from then on."""
