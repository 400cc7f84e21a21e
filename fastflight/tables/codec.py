"""The interfaces of every codec: rows from bytes, and bytes from rows.

A `RowReader` takes the bytes of one file in pieces of any size and returns the rows that are complete so far. How the
bytes are split never changes the rows. `finish()` returns the rest. A bad row is counted in `rejected`, with the offset
of its first byte and a reason; with `on_error="fail"` it raises `DataError` instead.

A `RowWriter` is the inverse: call `begin()`, `encode()` for each batch, then `finish()`. Their bytes joined are the
file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import pyarrow as pa

OnError = Literal["skip", "fail"]

# Rejected rows kept for the metadata; all are counted. A trailer of 20 examples stays below gRPC's 8 KiB of headers.
MAX_REJECTED_EXAMPLES = 20


@dataclass(frozen=True, slots=True)
class Layout:
    """The format of a file, and which columns to read or write.

    `format`: `csv`, `jsonl`, `packed`, `arrow` or `raw`. `schema`: column name to Arrow type name, in order; None
    means inferred (csv, jsonl), given by the file (arrow), or derived from `record` (packed). `columns`: the columns
    to keep, in this order; for `packed`, the names of the record's fields instead. `record`: the `struct` format of
    one `packed` record. `offset`: where in the file the bytes begin, for `raw` rows, which carry it. `not_finite`: what
    a `jsonl` writer does with NaN and infinities, which JSON does not have. `bytes_as`: what the writers of `csv` and
    `jsonl` do with columns of bytes, which a reader would take for text.
    """

    format: str
    schema: Mapping[str, str] | None = None
    columns: tuple[str, ...] | None = None
    record: str | None = None
    on_error: OnError = "skip"
    offset: int = 0
    not_finite: Literal["refuse", "null"] = "refuse"
    bytes_as: Literal["refuse", "base64"] = "refuse"


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A rejected row: the `offset` of its first byte in the file, and the reason."""

    offset: int
    reason: str


@dataclass(slots=True)
class Rejected:
    """Rejected rows: their number, the first `MAX_REJECTED_EXAMPLES` of them, and the latest."""

    count: int = 0
    examples: list[RejectedRow] = field(default_factory=list)
    latest: RejectedRow | None = None

    @property
    def wants_reason(self) -> bool:
        """Whether the next row would become an example. If not, callers skip the costly search for a reason."""
        return len(self.examples) < MAX_REJECTED_EXAMPLES

    def add(self, offset: int, reason: str) -> None:
        self.count += 1
        self.latest = RejectedRow(offset, reason)
        if self.wants_reason:
            self.examples.append(self.latest)


def read_in_runs(rows: int, read: Callable[[slice], pa.RecordBatch]) -> tuple[list[pa.RecordBatch], list[int]]:
    """Read `rows` rows with `read`, which raises `pa.ArrowInvalid` for a run that holds a bad row.

    Returns the batches and the indices of the bad rows. A run that fails is halved, and the run after a success is
    doubled: each row is read a bounded number of times, however many are bad.
    """
    batches: list[pa.RecordBatch] = []
    failed: list[int] = []
    start, size = 0, rows
    while start < rows:
        stop = min(start + size, rows)
        try:
            batches.append(read(slice(start, stop)))
        except pa.ArrowInvalid:
            if stop - start > 1:
                size = (stop - start) // 2
                continue
            failed.append(start)
        else:
            size *= 2
        start = stop
    return batches, failed


class RowReader(Protocol):
    """Rows of one file, read incrementally."""

    @property
    def schema(self) -> pa.Schema | None:
        """The schema of every batch; None until it is known, at the latest after `finish()`."""

    @property
    def rejected(self) -> Rejected:
        """The rows rejected so far."""

    def feed(self, data: bytes) -> list[pa.RecordBatch]:
        """Read the next bytes. Returns the rows that they complete, none while the schema is not known."""

    def finish(self) -> list[pa.RecordBatch]:
        """End the file. Returns the remaining rows."""


class RowWriter(Protocol):
    """Bytes of one file, written incrementally."""

    def begin(self) -> bytes:
        """Return the bytes before the first row."""

    def encode(self, batch: pa.RecordBatch) -> bytes:
        """Return the bytes of these rows."""

    def finish(self) -> bytes:
        """Return the bytes after the last row."""
