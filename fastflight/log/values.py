"""What the log takes and returns: rows and their numbers, ranges, damage and statistics.

Ranges of numbers include both ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from fastflight.gap import Gap

# Numbers are stored in 64 bits with a sign.
MAX_SEQ = 2**62
# The earliest and the latest possible time, for ranges without an end.
BEGINNING = -(2**63)
END_OF_TIME = 2**63 - 1

# A row is a chunk of traffic, as `fastflight.sources.recorded_rows` makes it. The column `cut` is null if the row
# continues the one before it.
LOG_SCHEMA = pa.schema(
    [
        pa.field("time", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("direction", pa.string(), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
        pa.field("cut", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class NumberedRows:
    """Rows of a log. The first row has the number `first`, the others follow without a hole.

    `bytes` is the size of their `data`, or more than that.
    """

    first: int
    batch: pa.RecordBatch
    bytes: int = 0

    @property
    def last(self) -> int:
        return self.first + int(self.batch.num_rows) - 1


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


class Entry(NamedTuple):
    """Numbers of a log that have rows, or what is missing and `why`. `at` is the first row in the body.

    The times and the bytes of what is missing are None if they are not known.
    """

    first: int
    rows: int
    first_time: int | None = None
    last_time: int | None = None
    body: int = 0
    at: int = 0
    bytes: int | None = None
    why: str = ""

    @property
    def end(self) -> int:
        """The number after its last row."""
        return self.first + self.rows

    def overlaps(self, start: int, stop: int) -> bool:
        """Whether a part of it may be from `start` on and before `stop`, in us UTC."""
        return self.first_time is None or self.last_time is None or (self.first_time < stop and self.last_time >= start)

    def within(self, low: int, high: int) -> Entry:
        """Return its part with numbers from `low` on and below `high`."""
        first, end = max(self.first, low), min(self.end, high)
        if (first, end) == (self.first, self.end):
            return self
        return self._replace(first=first, rows=end - first, at=self.at + first - self.first, bytes=None)


@dataclass(frozen=True, slots=True)
class LogStatistics:
    """One log: its durable rows, their stored bytes, their numbers and their times (us UTC)."""

    rows: int
    bytes: int
    first_seq: int
    next_seq: int
    first_time: int | None
    last_time: int | None
    # Numbers without a row from `first_seq` on, as far as this is known without reading; unused ones are not counted.
    lost: int = 0
    # Damaged places with rows of this log, as far as reading has found them.
    damage: tuple[str, ...] = ()
    # The number of gaps, with cleared rows and the damage that was found, and the newest one that is not damage.
    gaps: int = 0
    newest_gap: Gap | None = None


@dataclass(frozen=True, slots=True)
class Extent:
    """Numbers `first` to `last` of a log that are stored in one file or group of files: read them in one pass.

    `rows` is the number of rows in it, `bytes` their stored size; both ignore damage. With a time range, both are
    upper limits. `first_time` is the earliest time of the records that have the rows, in us UTC; None if it is unknown.
    """

    first: int
    last: int
    rows: int
    bytes: int
    first_time: int | None = None


@dataclass(slots=True)
class StoredRows:
    """The oldest rows of a log as Parquet files, for an engine that reads Parquet itself.

    The rows from `first` to `end` - 1 are in `files`, in order, or missing: `gaps` counts the gaps, `lost` the rows.
    Files may have earlier rows as well. Rows from `end` on must be read from the log. The files stay until `close`.
    """

    first: int = 0
    end: int = 0
    files: list[Path] = field(default_factory=list)
    # The first and the last of these numbers in each file.
    spans: list[tuple[int, int]] = field(default_factory=list)
    gaps: int = 0
    lost: int = 0
    release: Callable[[], None] = lambda: None

    def close(self) -> None:
        """Allow that the files are deleted."""
        self.release()

    def __enter__(self) -> StoredRows:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
