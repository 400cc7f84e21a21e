"""Bodies: rows of logs as bytes, with the log and the number of each row. No I/O.

A body of the tail is one Arrow record batch, without its schema, and has the rows of many logs. The other bodies are
Parquet files. Rows of one log are in ascending order.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fastflight.errors import DataError
from fastflight.log.values import LOG_SCHEMA, Entry, NumberedRows

# The most bytes of a batch. Recorders append far less.
MAX_BODY_BYTES = 64 * 1024 * 1024
LOG_COLUMN = "fastflight.log"
SEQ_COLUMN = "fastflight.seq"
PARQUET_END = b"PAR1"
# Few enough rows that a small range is cheap to read.
GROUP_ROWS = 64 * 1024
# What decoding raises for bytes that are not a body.
UNREADABLE = pa.ArrowException, OSError, ValueError


def _with_keys(log_type: pa.DataType, seq_type: pa.DataType) -> pa.Schema:
    keys = [pa.field(LOG_COLUMN, log_type, nullable=False), pa.field(SEQ_COLUMN, seq_type, nullable=False)]
    return pa.schema([*keys, *LOG_SCHEMA])


# In files, where other tools read them, logs have their names, and numbers have no sign, as in SQL and in requests.
TAIL_SCHEMA = _with_keys(pa.int32(), pa.int64())
FILE_SCHEMA = _with_keys(pa.string(), pa.uint64())


def check(batch: pa.RecordBatch) -> None:
    """Raise `DataError` unless `batch` has rows of `LOG_SCHEMA`, each with a time, and not too many bytes."""
    if not batch.schema.equals(LOG_SCHEMA):
        raise DataError(
            "the batch has another schema than a log", hint=f"Its columns are {', '.join(LOG_SCHEMA.names)}"
        )
    if not batch.num_rows:
        raise DataError("a batch without rows", hint="There is nothing to keep")
    if batch.column(0).null_count:
        raise DataError("a row has no time", where="time")
    if batch.nbytes > MAX_BODY_BYTES:
        raise DataError(f"the batch has {batch.nbytes} bytes", hint=f"At most {MAX_BODY_BYTES}: append it in parts")


def times_of(rows: pa.RecordBatch, lengths: Sequence[int]) -> list[tuple[int, int]]:
    """Return the earliest and the latest time of consecutive parts of rows, of these lengths, in us UTC."""
    times = rows.column("time").view(pa.int64()).to_numpy()
    starts = np.cumsum([0, *lengths[:-1]])
    earliest, latest = np.minimum.reduceat(times, starts), np.maximum.reduceat(times, starts)
    return list(zip(earliest.tolist(), latest.tolist(), strict=True))


def numbers_of(firsts: Sequence[int], lengths: Sequence[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the numbers of the rows of consecutive parts, from the first number of each on."""
    # What is to be added to the place of a row, for each part.
    offsets = np.array(firsts, np.int64) - np.cumsum([0, *lengths[:-1]])
    numbers: np.ndarray[Any, np.dtype[np.int64]] = np.repeat(offsets, lengths)
    numbers += np.arange(len(numbers))
    return numbers


class DecodedBody:
    """The rows in a body. `keyed` has them with their logs and numbers, as a batch of `TAIL_SCHEMA`."""

    def __init__(self, keyed: pa.RecordBatch) -> None:
        self.keyed = keyed
        self._rows = pa.RecordBatch.from_arrays(keyed.columns[2:], schema=LOG_SCHEMA)
        self._logs, self._numbers = (column.to_numpy() for column in keyed.columns[:2])
        data = keyed.column("data")
        # Where the bytes of each row begin in the column, and the end of the last.
        self._offsets = np.frombuffer(data.buffers()[1], np.int32, keyed.num_rows + 1, data.offset * 4)

    def parts(self, entry: Entry) -> Iterator[Entry]:
        """Yield the parts of `entry` that are decoded on their own: here it is all of it."""
        yield entry

    def rows(self, log: int, at: int, first: int, count: int) -> NumberedRows | None:
        """Return `count` rows of a log from row `at` on; None if other rows than those are there."""
        last = at + count - 1
        if not 0 <= at <= last < len(self._logs):
            return None
        logs, numbers = self._logs, self._numbers
        if not (logs[at] == logs[last] == log and numbers[at] == first and numbers[last] == first + count - 1):
            return None
        return NumberedRows(first, self._rows.slice(at, count), int(self._offsets[last + 1] - self._offsets[at]))


class FileBody:
    """The rows in a Parquet file, all of the log with this number. A row group is decoded when its rows are read."""

    def __init__(self, data: bytes, log: int) -> None:
        self._file = pq.ParquetFile(pa.BufferReader(data))
        self._log = log
        self._groups = [self._file.metadata.row_group(group) for group in range(self._file.num_row_groups)]
        # Where each row group begins, and the end of the last.
        self._starts = [0, *accumulate(group.num_rows for group in self._groups)]

    @property
    def keyed(self) -> pa.RecordBatch:
        """All rows, as a batch of `TAIL_SCHEMA`."""
        return self._decoded(range(len(self._groups))).keyed

    def parts(self, entry: Entry) -> Iterator[Entry]:
        """Yield the part of `entry` in each row group, with the times of the group."""
        for group, start, stop in zip(self._groups, self._starts, self._starts[1:], strict=False):
            part = entry.within(entry.first + start - entry.at, entry.first + stop - entry.at)
            if part.rows > 0:
                times = group.column(FILE_SCHEMA.names.index("time")).statistics
                yield part._replace(first_time=times.min_raw, last_time=times.max_raw) if times else part

    def rows(self, log: int, at: int, first: int, count: int) -> NumberedRows | None:
        """Return `count` rows of a log from row `at` on; None if other rows than those are there."""
        if not 0 <= at < at + count <= self._starts[-1]:
            return None
        begin, end = bisect_right(self._starts, at) - 1, bisect_left(self._starts, at + count)
        try:
            decoded = self._decoded(range(begin, end))
        except UNREADABLE:
            return None
        return decoded.rows(log, at - self._starts[begin], first, count)

    def _decoded(self, groups: Sequence[int]) -> DecodedBody:
        table = self._file.read_row_groups(list(groups), use_threads=False).cast(FILE_SCHEMA)
        rows = joined(table.combine_chunks().to_batches())
        logs = pa.repeat(pa.scalar(self._log, pa.int32()), rows.num_rows)
        columns = [logs, rows.column(1).cast(pa.int64()), *rows.columns[2:]]
        return DecodedBody(pa.RecordBatch.from_arrays(columns, schema=TAIL_SCHEMA))


def decode(data: bytes, crc: int, file_of: int | None = None) -> DecodedBody | FileBody | None:
    """Return the rows in a body; None if it is damaged. `file_of` is the number of the log of a Parquet file."""
    if crc32(data) != crc:
        return None
    try:
        if file_of is not None:
            return FileBody(data, file_of)
        return DecodedBody(pa.ipc.read_record_batch(pa.py_buffer(data), TAIL_SCHEMA))
    except UNREADABLE:
        return None


def to_parquet(name: str, rows: pa.RecordBatch) -> bytes:
    """Return a Parquet file with `rows` of `TAIL_SCHEMA`, all of the log with this name."""
    sink = pa.BufferOutputStream()
    named = pa.array([name] * rows.num_rows, pa.string())
    table = pa.Table.from_arrays([named, rows.column(1).cast(pa.uint64()), *rows.columns[2:]], schema=FILE_SCHEMA)
    pq.write_table(
        table, sink, row_group_size=GROUP_ROWS, compression="zstd", use_dictionary=True, write_statistics=True
    )
    return bytes(sink.getvalue().to_pybytes())


def log_of(file: bytes) -> str:
    """Return the name of the log that a Parquet file has rows of. `ValueError` or `ArrowException` for another file."""
    (name,) = pq.read_table(pa.BufferReader(file), columns=[LOG_COLUMN]).column(0).unique().to_pylist()
    return str(name)


def runs_of(body: pa.RecordBatch, breaks: Iterable[tuple[int, int]] = ()) -> list[tuple[int, int, int, int]]:
    """Return the runs of rows without a hole: the log, the first row, its number, and how many rows there are.

    `breaks` are logs and numbers of rows that begin a run, because something without a number is missing before them.
    """
    logs, numbers = body.column(0).to_numpy(), body.column(1).to_numpy()
    begins = np.diff(numbers, prepend=-1) != 1
    begins |= np.diff(logs, prepend=-1) != 0
    # A line that is lost again and again has as many breaks as rows.
    by_log: dict[int, list[int]] = {}
    for log, number in breaks:
        by_log.setdefault(log, []).append(number)
    for log, firsts in by_log.items():
        begins |= (logs == log) & np.isin(numbers, firsts)
    ends = [*np.flatnonzero(begins).tolist(), len(numbers)]
    return [
        (int(logs[start]), start, int(numbers[start]), stop - start)
        for start, stop in zip(ends, ends[1:], strict=False)
    ]


def entries_of(
    rows: pa.RecordBatch, body: int, size: int, breaks: Iterable[tuple[int, int]]
) -> list[tuple[int, Entry]]:
    """Return an entry for each run of rows, as `runs_of`, with its log, for a body of `size` bytes."""
    runs = runs_of(rows, breaks)
    times = times_of(rows, [count for *_, count in runs])
    return [
        (log, Entry(first, count, *its_times, body, at, max(1, size * count // rows.num_rows)))
        for (log, at, first, count), its_times in zip(runs, times, strict=True)
    ]


def joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows of several batches as one batch."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
