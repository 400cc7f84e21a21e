"""Converts the traffic of a device to rows of a log, and rows of a log to rows of a `recording` answer. No I/O.

A row of the log is a chunk of traffic. Its number is the number of the row in the log, the same that live sessions
have. The column `cut` is null if the row continues the one before it. Otherwise it says why not: the line was lost and
opened again, recording began, or a request had the device (its own traffic is not recorded). If `cut` ends with
`WAITED`, the time at which the device sent the row is not known, and `Replay` gives null for it.

`log_columns` makes rows for the log from the chunks of a tap. `Replay` takes what the log returns, rows and missing
ranges, and returns the rows that a live session would have returned: `bytes` directly from the columns of the log, the
other formats through `SessionRows`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastflight.errors import RequestError
from fastflight.gap import Gap, Why
from fastflight.log import LOG_SCHEMA, Columns, NumberedRows
from fastflight.service.requests import DeviceSession, Recording
from fastflight.service.source import Lot, Noted, Summary
from fastflight.sources.session_rows import BATCH_BYTES, BYTES_SCHEMA, DIRECTIONS, TIME, TIME_METADATA, SessionRows
from fastflight.tables import LineParser
from fastflight.tables.bare import empty
from fastflight.tables.schemas import project
from fastflight.transport.chunk_buffer import Chunk
from fastflight.transport.tap import REQUEST_CUTS

_DIRECTIONS = pa.array(DIRECTIONS)
# Ends the cut of a row that waited in the port before the line was opened. The log holds the time at which it was read.
WAITED = " (it had waited in the port: when it was sent is not known)"
# Rows of a recording have no flush time; this keeps `SessionRows` from flushing by its own.
_PATIENT_MS = 60_000

COMPLETE = "end of recording"
LIMIT = "limit reached"


def log_columns(chunks: Sequence[Chunk], cuts: Mapping[int, str]) -> Columns:
    """Return chunks as columns of `LOG_SCHEMA`. `cuts` maps chunk numbers to their cuts."""
    cuts = {**cuts, **{chunk.seq: cuts.get(chunk.seq, "") + WAITED for chunk in chunks if chunk.waited}}
    return [
        [chunk.time_ns // 1000 for chunk in chunks],
        [chunk.direction for chunk in chunks],
        [chunk.data for chunk in chunks],
        [cuts.get(chunk.seq) for chunk in chunks] if cuts else [None] * len(chunks),
    ]


def log_batch(chunks: Sequence[Chunk], cuts: Mapping[int, str]) -> pa.RecordBatch:
    """As `log_columns`, as a batch of `LOG_SCHEMA`."""
    columns = [pa.array(*each) for each in zip(log_columns(chunks, cuts), LOG_SCHEMA.types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=LOG_SCHEMA)


def chunks_of(rows: NumberedRows) -> Iterator[Chunk]:
    """Yield the chunks that `log_columns` made rows of."""
    columns = ("time", "direction", "data", "cut")
    times, ways, data, cuts = (rows.batch.column(name) for name in columns)
    values = zip(times.view(pa.int64()).to_pylist(), ways.to_pylist(), data.to_pylist(), cuts.to_pylist(), strict=True)
    for seq, (time, way, content, cut) in enumerate(values, rows.first):
        reason = cut or ""
        yield Chunk(seq, time * 1000, way, content, reason.removesuffix(WAITED), waited=reason.endswith(WAITED))


class Replay:
    """The answer to a `recording` request.

    Pass each item of the log to `feed` until the replay is `full` or the log has ended, then call `finish`.
    """

    def __init__(self, request: Recording, parser: LineParser | None = None) -> None:
        """`parser` parses the lines, for a request of typed rows."""
        is_lines = parser is not None or request.format != "bytes"
        self._rows: _Lines | _ChunkRows = _Lines(request, parser) if is_lines else _ChunkRows(request)
        self._missing: Gap | None = None
        # Whether anything came before: `begin` says whether the very first row begins a line.
        self._any = False
        # Places that cannot be read, and what the store holds of the range: the number of parts, and their bytes. The
        # caller sets them before it calls `summary`.
        self.damage: list[str] = []
        self.stored = {"parts": 0, "bytes": 0}
        self.schema = self._rows.schema

    @property
    def full(self) -> bool:
        """Whether the limit of rows is reached."""
        return self._rows.full

    def begin(self, begins_line: bool) -> None:
        """Set whether the first byte of the device is known to begin a line. Call this before the first `feed`."""
        if isinstance(self._rows, _Lines):
            self._rows.begin(begins_line)

    def feed(self, item: NumberedRows | Gap) -> Lot:
        """Take the next item of the log and return the batches that are ready."""
        if isinstance(item, Gap):
            ready = self._flush()
            if item.why != Why.UNUSED:
                self._missing = item
                self._any = True
            return ready
        ready = []
        for first, batch, full_cut in _pieces(item):
            cut = full_cut.removesuffix(WAITED)
            ready += self._flush()
            if cut in REQUEST_CUTS or (cut and self._any):
                ready += self._rows.end_line(cut)
            self._any = True
            ready += self._rows.add(first, batch, waited=cut != full_cut)
            if self.full:
                break
        return ready

    def finish(self) -> Lot:
        """Return the remaining batches, once the log has ended or the replay is `full`."""
        return [*self._flush(), *self._rows.finish()]

    def summary(self) -> Summary:
        """Return counts, and why the reading ended. A later reading can continue at `next_seq`."""
        ended = LIMIT if self.full else COMPLETE
        return {"ended": ended, **self._rows.summary(), "damage": self.damage, "stored": self.stored}

    def _flush(self) -> Lot:
        gap, self._missing = self._missing, None
        return [] if gap is None else self._rows.missed(gap)


def _pieces(rows: NumberedRows) -> Iterator[tuple[int, pa.RecordBatch, str]]:
    """Split the rows at each cut. Yields the first number, the rows, and the cut before them (empty: none)."""
    batch = rows.batch
    reasons = batch.column("cut")
    if reasons.null_count == batch.num_rows:
        yield rows.first, batch, ""
        return
    places = [0, *(place for place in np.flatnonzero(pc.is_valid(reasons).to_numpy(False)).tolist() if place)]
    for start, stop in zip(places, [*places[1:], batch.num_rows], strict=True):
        yield rows.first + start, batch.slice(start, stop - start), reasons[start].as_py() or ""


class _Lines(SessionRows):
    """Makes rows of lines, as a live session does."""

    def __init__(self, request: Recording, parser: LineParser | None) -> None:
        keys = request.model_dump(include={"columns", "batch_rows", "limit_rows"})
        format_ = request.format if parser is None else "lines"
        session = DeviceSession(
            device=request.name, format=format_, schema_=request.schema_, flush_ms=_PATIENT_MS, **keys
        )
        super().__init__(session, parser=parser)

    def add(self, first: int, batch: pa.RecordBatch, *, waited: bool) -> Lot:
        return self.feed(chunks_of(NumberedRows(first, batch)))

    def missed(self, gap: Gap) -> Lot:
        return self.feed([gap])


class _ChunkRows:
    """Makes a row of each chunk: its number, and the columns of the log."""

    def __init__(self, request: Recording) -> None:
        if request.schema_ is not None:
            raise RequestError(
                "the columns of bytes are fixed", where="schema", hint="Leave it out, or ask for jsonl or csv"
            )
        self._request = request
        self.schema = project(BYTES_SCHEMA, request.columns).with_metadata({b"fastflight.time": TIME_METADATA})
        self._waiting: list[tuple[int, pa.RecordBatch]] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._row_count = 0
        self._bytes = [0] * len(DIRECTIONS)
        self._gaps = self._lost = 0
        self._next: int | None = None

    @property
    def full(self) -> bool:
        return self._request.limit_rows is not None and self._row_count >= self._request.limit_rows

    def add(self, first: int, batch: pa.RecordBatch, *, waited: bool) -> Lot:
        if waited:
            times = pa.concat_arrays([pa.nulls(1, TIME), batch.column("time").slice(1)])
            batch = batch.set_column(0, pa.field("time", TIME), times)
        if self._request.limit_rows is not None:
            batch = batch.slice(0, self._request.limit_rows - self._row_count)
        self._row_count += batch.num_rows
        self._next = first + batch.num_rows
        self._waiting.append((first, batch))
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.column("data").nbytes
        enough = self._waiting_rows >= self._request.batch_rows or self._waiting_bytes >= BATCH_BYTES
        return self._flush() if enough else []

    def missed(self, gap: Gap) -> Lot:
        ready = self._flush()
        self._gaps += 1
        self._lost += gap.rows or 0
        self._next = gap.last + 1
        return [*ready, Noted(empty(self.schema), {"gap": gap.details()})]

    def end_line(self, cut: str) -> Lot:
        return []

    def finish(self) -> Lot:
        return self._flush()

    def summary(self) -> Summary:
        return {
            **{f"{direction}_bytes": count for direction, count in zip(DIRECTIONS, self._bytes, strict=True)},
            "next_seq": self._next,
            "gaps": self._gaps,
            "lost": self._lost,
            "rejected": 0,
            "rejected_rows": [],
        }

    def _flush(self) -> Lot:
        waiting, self._waiting = self._waiting, []
        self._waiting_rows = self._waiting_bytes = 0
        if not waiting or not sum(batch.num_rows for _, batch in waiting):
            return []
        seq = np.concatenate([np.arange(first, first + batch.num_rows, dtype=np.uint64) for first, batch in waiting])
        time = _concat([batch.column("time") for _, batch in waiting])
        codes = _concat([pc.index_in(batch.column("direction"), _DIRECTIONS) for _, batch in waiting]).cast(pa.int8())
        data = _concat([batch.column("data") for _, batch in waiting])
        self._count(codes, data)
        direction = pa.DictionaryArray.from_arrays(codes, _DIRECTIONS)
        whole = pa.RecordBatch.from_arrays([pa.array(seq), time, direction, data], schema=BYTES_SCHEMA)
        batch = whole.select(self.schema.names)
        step = self._request.batch_rows
        return [batch.slice(at, step) for at in range(0, batch.num_rows, step)]

    def _count(self, codes: pa.Array, data: pa.Array) -> None:
        lengths = pc.binary_length(data)
        sent = pc.sum(pc.multiply(lengths.cast(pa.int64()), codes.cast(pa.int64()))).as_py()
        self._bytes[1] += sent
        self._bytes[0] += pc.sum(lengths).as_py() - sent


def _concat(arrays: list[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
