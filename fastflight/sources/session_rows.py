"""Turns the traffic of a device into rows, live or from a recording. No I/O.

`SessionRows.feed` takes chunks and gaps in order and returns batches. In format `bytes` each chunk is a row. In
`lines`, `jsonl` and `csv` each text line that the device sent is a row, with the number and the time of the chunk that
holds the first byte of the line.

A line is never joined across a gap. In `lines`, the text before the gap and the text after it, up to the next line end,
are two rows; in `jsonl` and `csv` both are rejected, since half a number still looks like a number. For the same
reason these two formats reject the first line, unless it is known to begin where the reading begins. A note between
the rows before and after reports the gap: `{"gap": {...}}`, with `Gap.details`.

Live typed rows (`as`) have a parser of their own, and end before a line that its columns do not hold (`changed`). They
begin with the first whole line and end with the last one: the text around these is not counted.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from fastflight.errors import RequestError
from fastflight.gap import Gap, Why, moment
from fastflight.service.requests import DeviceSession, Recording
from fastflight.service.source import Batches, Noted, Summary
from fastflight.sources.live_rows import LayoutWatch
from fastflight.sources.misfits import MisfitNotice
from fastflight.sources.row_layout import RowLayout
from fastflight.sources.session_lines import UNKNOWN_BEGINNING, LineSplitter, SessionLine, known_time
from fastflight.tables import LineParser, ReadSummary
from fastflight.tables.bare import empty
from fastflight.tables.schemas import project
from fastflight.transport.chunk_buffer import Chunk
from fastflight.transport.tap import REQUEST_CUTS

# A batch of this size is full: half a message, since its last chunk may be large.
BATCH_BYTES = 1024 * 1024

TIME = pa.timestamp("us", tz="UTC")
# The time is null for data that waited in the port before the line was opened: nobody knows when it was sent.
_PLACE = [pa.field("seq", pa.uint64(), nullable=False), pa.field("time", TIME)]
BYTES_SCHEMA = pa.schema(
    [
        *_PLACE,
        pa.field("direction", pa.string(), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
    ]
)
# Only in sessions that include the traffic of requests.
REQUEST = pa.field("request", pa.bool_(), nullable=False)
LINES_SCHEMA = pa.schema([*_PLACE, pa.field("text", pa.string(), nullable=False)])
DIRECTIONS = ("rx", "tx")
CUT = "the line was cut by a gap"


class SessionRows:
    """Makes the batches of a session from its chunks and gaps.

    Pass the traffic to `feed`, which must also be called, if with nothing, when `deadline` is reached. Call `finish` at
    the end. `RequestError` for keys of `request` that contradict each other.
    """

    def __init__(
        self,
        request: DeviceSession,
        clock: Callable[[], float] = time.monotonic,
        parser: LineParser | None = None,
        watch: LayoutWatch | None = None,
    ) -> None:
        """`parser` parses the lines of a request of format `lines`, or of typed rows, and `watch` finds its limits."""
        self._request = request
        self._clock = clock
        self._parser = parser or parser_of(request)
        self._watch = watch
        self._lines = None if self._parser is None and request.format == "bytes" else LineSplitter(False)
        self._all_columns = schema_of(request, self._parser)
        self.schema = project(self._all_columns, request.columns).with_metadata({b"fastflight.time": TIME_METADATA})
        self._waiting: list[Chunk | SessionLine] = []
        self._waiting_bytes = 0
        self._since = 0.0
        self._gap: Gap | None = None
        self._rows = 0
        self._bytes = dict.fromkeys(DIRECTIONS, 0)
        self._gaps = 0
        self._lost = 0
        # The number of the first chunk after the last gap that was reported.
        self._after_gap: int | None = None
        self._next: int | None = None
        self._read_summary = ReadSummary() if self._parser is None else self._parser.summary
        self._misfits = MisfitNotice(self._read_summary, "seq", clock)

    @property
    def full(self) -> bool:
        """Whether the limit of rows is reached, or the layout has changed."""
        return self._remaining_rows == 0 or self.changed is not None

    @property
    def changed(self) -> str | None:
        """How the lines differ from the layout of the rows; None while they do not."""
        return self._watch.why if self._watch is not None and self._watch.changed_at is not None else None

    @property
    def deadline(self) -> float | None:
        """The time, by the clock, at which to call `due`; None while nothing waits."""
        waiting = self._since + self._request.flush_ms / 1000 if self._waiting or self._gap else None
        return min((each for each in (waiting, self._misfits.deadline) if each is not None), default=None)

    def begin(self, begins_line: bool) -> None:
        """Set whether the first byte of the device is known to begin a line. Call this before the first `feed`.

        If it is not known, the first line counts as cut.
        """
        if self._lines is not None:
            self._lines = LineSplitter(begins_line)

    def feed(self, items: Iterable[Chunk | Gap]) -> Batches:
        """Take the next traffic and return the batches that are ready."""
        ready: Batches = []
        for item in items:
            if self.full:
                return ready
            if isinstance(item, Gap):
                self._missed(item, ready)
            else:
                self._cut(item, ready)
                self._take(item, ready)
        return ready if self.full else ready + self.due()

    @property
    def after_gap(self) -> int | None:
        """The number of the first chunk after the last gap that was reported."""
        return self._after_gap

    def due(self) -> Batches:
        """Return the rows whose flush time is over, and a note on misfits if one is due."""
        deadline = self.deadline
        ready = self._flush() if deadline is not None and self._clock() >= deadline else []
        if note := self._misfits.note(self._rows):
            ready.append(Noted(empty(self.schema), note))
        return ready

    def finish(self) -> Batches:
        """Return the remaining batches."""
        ready: Batches = []
        if self._request.as_ is not None:
            if self._lines is not None and self._lines.partial_seq is not None:
                self._next = self._lines.partial_seq
        elif not self.full:
            self._end_line("the session ended within the line", ready)
        return ready + self._flush()

    def summary(self) -> Summary:
        """Return counts. A later session can continue at `next_seq`."""
        return {
            **{f"{direction}_bytes": count for direction, count in self._bytes.items()},
            "next_seq": self._next if self._watch is None or self.changed is None else self._watch.changed_at,
            "gaps": self._gaps,
            "lost": self._lost,
            "rejected": 0,
            "rejected_rows": [],
            **{key: value for key, value in self._read_summary.as_dict("seq").items() if key != "rows"},
        }

    @property
    def _remaining_rows(self) -> int | None:
        limit = self._request.limit_rows
        return None if limit is None else limit - self._rows

    def _cut(self, chunk: Chunk, ready: Batches) -> None:
        """Report what is missing before a chunk, and end the line that it does not continue."""
        if not chunk.cut or (chunk.cut not in REQUEST_CUTS and self._next is None):
            return  # `begin` has said whether the first chunk begins a line
        if chunk.cut in REQUEST_CUTS or chunk.unread is None:
            self._end_line(chunk.cut, ready)
        elif self._after_gap != chunk.seq:
            self._missed(line_lost(chunk.seq, chunk.cut, *chunk.unread), ready)

    def _end_line(self, reason: str, ready: Batches) -> None:
        if self._lines is not None:
            for line in self._lines.end(reason):
                self._add(line, ready)

    def _missed(self, gap: Gap, ready: Batches) -> None:
        self._end_line(gap.detail or CUT, ready)
        ready += self._flush()
        self._gap = gap
        self._since = self._clock()
        self._gaps += 1
        self._lost += gap.rows or 0
        self._next = self._after_gap = gap.last + 1

    def _take(self, chunk: Chunk, ready: Batches) -> None:
        self._bytes[chunk.direction] += len(chunk.data)
        self._next = chunk.seq + 1
        if self._lines is None:
            self._add(chunk, ready)
            return
        for line in self._lines.feed(chunk):
            if self._request.as_ is not None and line.cut == UNKNOWN_BEGINNING:
                continue
            if self.full:
                # A session that continues here gets this line, and again the lines before it of the same chunk.
                self._next = line.seq
                return
            self._add(line, ready)
        if self.full and self._lines.partial_seq is not None:
            self._next = self._lines.partial_seq

    def _add(self, row: Chunk | SessionLine, ready: Batches) -> None:
        if not self._waiting and self._gap is None:
            self._since = self._clock()
        self._waiting.append(row)
        self._waiting_bytes += len(row.data)
        remaining = self._remaining_rows
        enough = self._request.batch_rows if remaining is None else min(self._request.batch_rows, remaining)
        if len(self._waiting) >= enough or self._waiting_bytes >= BATCH_BYTES:
            ready += self._flush()

    def _flush(self) -> Batches:
        """Return all waiting rows and notes as at most one batch."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        gap, self._gap = self._gap, None
        batch = self._batch(waiting).slice(0, self._remaining_rows)
        if self._request.columns is not None:
            batch = batch.select(self.schema.names)
        self._rows += batch.num_rows
        if gap is not None:
            return [Noted(batch, {"gap": gap.details()})]
        return [batch] if batch.num_rows else []

    def _parsed(self, parser: LineParser, lines: Sequence[SessionLine]) -> pa.RecordBatch:
        if self._watch is not None:
            lines = self._watch.fitting(lines)
        return parse_lines(parser, lines, self._all_columns, self._watch)

    def _batch(self, rows: list[Any]) -> pa.RecordBatch:
        if self._parser is not None:
            return self._parsed(self._parser, rows)
        if self._lines is not None:
            text = [line.data.removesuffix(b"\r").decode("utf-8", "replace") for line in rows]
            return pa.RecordBatch.from_arrays(
                [*_line_places(rows), pa.array(text, pa.string())], schema=self._all_columns
            )
        places = _places([chunk.seq for chunk in rows], [known_time(chunk) for chunk in rows])
        directions = pa.array([chunk.direction for chunk in rows], pa.string())
        columns = [*places, directions, pa.array([chunk.data for chunk in rows], pa.binary())]
        if self._request.requests:
            columns.append(pa.array([chunk.request for chunk in rows], pa.bool_()))
        return pa.RecordBatch.from_arrays(columns, schema=self._all_columns)


def parse_lines(
    parser: LineParser, lines: Sequence[SessionLine], schema: pa.Schema, watch: LayoutWatch | None = None
) -> pa.RecordBatch:
    """Return the rows of lines that the device sent. `schema` is the `schema_of_lines` of the parser.

    The parser's summary counts lines that are no rows, and lines that are not whole. `watch` gets the former.
    """
    whole = [line for line in lines if not line.cut]
    parsed = parser.parse([line.data for line in whole])
    if watch is not None:
        last = parsed.lines[-1] if parsed.lines else -1
        watch.add_refused([whole[index] for index, _ in parsed.refused if index > last], after_row=last >= 0)
    refused = [(whole[index].seq, reason) for index, reason in parsed.refused]
    refused += [(line.seq, line.cut) for line in lines if line.cut and line.data.strip()]
    for seq, reason in sorted(refused):
        parser.summary.reject(seq, reason)
    rows = [whole[index] for index in parsed.lines]
    return pa.RecordBatch.from_arrays([*_line_places(rows), *parsed.rows.columns], schema=schema)


def schema_of_lines(parser: LineParser) -> pa.Schema:
    """Return the columns of `parse_lines`."""
    return pa.schema([*_PLACE, *parser.schema])


def require_own_layout(request: DeviceSession | Recording) -> None:
    """Raise `RequestError` if a request of typed rows has keys that say how lines are parsed."""
    for key, given in (
        ("format", request.format != "bytes"),
        ("schema", request.schema_ is not None),
        ("requests", isinstance(request, DeviceSession) and request.requests),
    ):
        if given:
            raise RequestError(
                "the rows of a device have a layout of their own", where=key, hint="Leave it out, or leave `as` out"
            )


def parser_of(request: DeviceSession) -> LineParser | None:
    """Return the parser of the request's format; None for `bytes` and `lines`.

    `RequestError` if `schema` is missing, wrong or not allowed with this format, or `requests` is not.
    """
    if request.requests and request.format != "bytes":
        raise RequestError(
            f"{request.format} cannot include the traffic of requests",
            where="requests",
            hint="Leave it out, or ask for bytes",
        )
    if request.format == "bytes" or request.format == "lines":
        if request.schema_ is not None:
            raise RequestError(
                f"the columns of {request.format} are fixed",
                where="schema",
                hint="Leave it out, or ask for jsonl or csv",
            )
        return None
    return RowLayout(request.format, request.schema_).parser()


def schema_of(request: DeviceSession, parser: LineParser | None) -> pa.Schema:
    """Return all columns of the format, before the request's `columns` selects among them."""
    if parser is not None:
        return schema_of_lines(parser)
    if request.format == "lines":
        return LINES_SCHEMA
    return BYTES_SCHEMA.append(REQUEST) if request.requests else BYTES_SCHEMA


def line_lost(seq: int, reason: str, since_ns: int | None, until_ns: int | None = None) -> Gap:
    """Return the gap before the chunk `seq`: nothing read the line between two times, in ns since 1970."""
    since, until = (None if time_ns is None else moment(time_ns // 1000) for time_ns in (since_ns, until_ns))
    return Gap(seq, seq - 1, Why.LINE_LOST, reason, since, until)


def _line_places(lines: list[SessionLine]) -> list[pa.Array]:
    return _places([line.seq for line in lines], [line.time_ns for line in lines])


def _places(numbers: list[int], times: list[int | None]) -> list[pa.Array]:
    """Return the columns `seq` and `time`."""
    return [
        pa.array(numbers, pa.uint64()),
        pa.array([None if time_ns is None else time_ns // 1000 for time_ns in times], TIME),
    ]


def _time_metadata() -> bytes:
    clock: Mapping[str, Any] = {
        "clock": "the server's, UTC",
        "resolution_us": max(1, round(time.get_clock_info("time").resolution * 1e6)),
        "meaning": "rx: when the read returned, so at or after the last byte arrived; tx: when the write began",
    }
    return json.dumps(clock).encode()


TIME_METADATA = _time_metadata()
