"""Converts the traffic of a device to rows of a log, and rows of a log to rows of a `recording` answer. No I/O.

A row of the log is a chunk of traffic. Its number is the number of the row in the log, the same that live sessions
have. The column `cut` is null if the row continues the one before it. Otherwise it says why not: the line was lost and
opened again, recording began, or a request had the device (its own traffic is not recorded). If `cut` ends with
`WAITED`, the time at which the device sent the row is not known, and is null in the answer.

`log_batch` makes rows for the log from the chunks of a tap. `RecordedLines` and `RecordedChunks` take what the log
returns, rows and missing ranges, and return the rows that a live session would have returned: `bytes` directly from the
columns of the log, the other formats as `SessionRows` does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastflight.errors import RequestError
from fastflight.gap import Gap, Why
from fastflight.log import LOG_SCHEMA, NumberedRows
from fastflight.service.requests import DeviceSession, Recording
from fastflight.service.source import Batches, Noted, Summary
from fastflight.sources.session_rows import BATCH_BYTES, BYTES_SCHEMA, DIRECTIONS, TIME, TIME_METADATA, SessionRows
from fastflight.tables import Batcher, LineParser
from fastflight.tables.bare import empty
from fastflight.tables.schemas import project
from fastflight.transport.chunk_buffer import Chunk

# Ends the cut of a row that waited in the port before the line was opened. The log holds the time at which it was read.
WAITED = " (it had waited in the port: when it was sent is not known)"
# Rows of a recording have no flush time; this keeps `SessionRows` from flushing on its own.
_PATIENT_MS = 60_000


def log_batch(chunks: Sequence[Chunk]) -> pa.RecordBatch:
    """Return chunks as a batch of `LOG_SCHEMA`."""
    columns: list[list[Any]] = [
        [chunk.time_ns // 1000 for chunk in chunks],
        [chunk.direction for chunk in chunks],
        [chunk.data for chunk in chunks],
        [chunk.cut + WAITED if chunk.waited else chunk.cut or None for chunk in chunks],
    ]
    arrays = [pa.array(*each) for each in zip(columns, LOG_SCHEMA.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=LOG_SCHEMA)


def chunks_of(rows: NumberedRows) -> Iterator[Chunk]:
    """Yield the chunks that `log_batch` made rows of."""
    columns = ("time", "direction", "data", "cut")
    times, ways, data, cuts = (rows.batch.column(name) for name in columns)
    values = zip(times.view(pa.int64()).to_pylist(), ways.to_pylist(), data.to_pylist(), cuts.to_pylist(), strict=True)
    for seq, (time, way, content, cut) in enumerate(values, rows.first):
        reason = cut or ""
        yield Chunk(seq, time * 1000, way, content, reason.removesuffix(WAITED), waited=reason.endswith(WAITED))


class RecordedLines(SessionRows):
    """The rows of lines of a recording, as a live session has them. `add` each item of the log, then `finish`."""

    def __init__(self, request: Recording, parser: LineParser | None = None) -> None:
        """`parser` parses the lines, for a request of typed rows."""
        keys = request.model_dump(include={"columns", "batch_rows", "limit_rows"})
        format_ = request.format if parser is None else "lines"
        session = DeviceSession(
            device=request.name, format=format_, schema_=request.schema_, flush_ms=_PATIENT_MS, **keys
        )
        super().__init__(session, parser=parser)

    def add(self, item: NumberedRows | Gap) -> Batches:
        """Take the next item of the log and return the batches that are ready."""
        if isinstance(item, NumberedRows):
            return self.feed(chunks_of(item))
        return [] if item.why == Why.UNUSED else self.feed([item])


class RecordedChunks:
    """A row for each chunk of a recording: its number, and the columns of the log. Used as `RecordedLines` is."""

    def __init__(self, request: Recording) -> None:
        if request.schema_ is not None:
            raise RequestError(
                "the columns of bytes are fixed", where="schema", hint="Leave it out, or ask for jsonl or csv"
            )
        self.schema = project(BYTES_SCHEMA, request.columns).with_metadata({b"fastflight.time": TIME_METADATA})
        self._remaining = request.limit_rows
        # Rows of a recording have no flush time.
        self._batcher = Batcher(request.batch_rows, math.inf, BATCH_BYTES)
        self._bytes = dict.fromkeys(DIRECTIONS, 0)
        self._gaps = self._lost = 0
        self._next: int | None = None

    @property
    def full(self) -> bool:
        """Whether the limit of rows is reached."""
        return self._remaining == 0

    def add(self, item: NumberedRows | Gap) -> Batches:
        """Take the next item of the log and return the batches that are ready."""
        if isinstance(item, NumberedRows):
            rows = item.batch.slice(0, self._remaining)
            self._next = item.first + rows.num_rows
            if self._remaining is not None:
                self._remaining -= rows.num_rows
            return [*self._batcher.add([self._batch(item.first, rows)], 0.0)]
        if item.why == Why.UNUSED:
            return []
        self._gaps += 1
        self._lost += item.rows or 0
        self._next = item.last + 1
        return [*self._batcher.flush(), Noted(empty(self.schema), {"gap": item.details()})]

    def finish(self) -> Batches:
        """Return the remaining rows."""
        return [*self._batcher.flush()]

    def summary(self) -> Summary:
        """Return counts. A later reading can continue at `next_seq`."""
        return {
            **{f"{direction}_bytes": count for direction, count in self._bytes.items()},
            "next_seq": self._next,
            "gaps": self._gaps,
            "lost": self._lost,
            "rejected": 0,
            "rejected_rows": [],
        }

    def _batch(self, first: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of the log with the columns of the answer; count their bytes."""
        times, directions, data, cuts = rows.columns
        if cuts.null_count < rows.num_rows:
            waited = pc.fill_null(pc.ends_with(cuts, WAITED), False)
            times = pc.if_else(waited, pa.scalar(None, TIME), times)
        lengths = pc.binary_length(data)
        sent = pc.sum(pc.if_else(pc.equal(directions, "tx"), lengths, 0)).as_py() or 0
        self._bytes["tx"] += sent
        self._bytes["rx"] += (pc.sum(lengths).as_py() or 0) - sent
        numbers = pa.array(np.arange(first, first + rows.num_rows, dtype=np.uint64))
        batch = pa.RecordBatch.from_arrays([numbers, times, directions, data], schema=BYTES_SCHEMA)
        return batch.select(self.schema.names)
