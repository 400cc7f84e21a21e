"""`recording`: reads the recorded traffic of a device as rows, from its log.

A reading covers the rows that are stored when it begins. Where rows are missing, a note gives their numbers, the reason
and, for damage, the place in the files. The sync path reads in the caller's thread, the async path in threads of the
loop's pool.

`parts` divides a request along the stored segments, for clients that read with several streams.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol, TypeAlias

import structlog

from fastflight.errors import RequestError, TransportError
from fastflight.gap import Gap, Why, microseconds
from fastflight.log import Extent, LogStatistics, NumberedRows, Range, StoredRows
from fastflight.service.requests import Recording
from fastflight.service.source import Batches, Estimate, Noted, Part, Parts, Reading, Summary, Takes
from fastflight.sources.following import LIMIT
from fastflight.sources.modes import Mode, TwoModeSource
from fastflight.sources.recorded_rows import RecordedChunks, RecordedLines, chunks_of
from fastflight.sources.session_lines import LINE_CUTS
from fastflight.sources.session_rows import require_own_layout
from fastflight.tables import LineParser

log = structlog.get_logger(__name__)

# The size of a list of batches: enough to make the switch to a thread cheap, and little enough to hold in memory.
STEP_BYTES = 2 * 1024 * 1024
# The stored size that is worth a stream of its own.
PART_BYTES = 64 * 1024 * 1024
# How far the row before a range that the device sent is looked for. What was sent to the device stands between.
LOOK_BACK_ROWS = 64
# A list ends after this many items of the log even if they give no rows: the caller checks for cancellation then.
STEP_ITEMS = 256

COMPLETE = "end of recording"
Rows: TypeAlias = RecordedChunks | RecordedLines


class Readable(Protocol):
    """The reading half of a log."""

    def read(self, wanted: Range = ...) -> Generator[NumberedRows | Gap, None, None]: ...

    def statistics(self) -> LogStatistics: ...

    def damage(self) -> Sequence[str]: ...

    def extents(self, wanted: Range = ...) -> list[Extent]: ...

    def stored(self) -> StoredRows: ...


class ReadableStore(Protocol):
    """Recordings by name: a store, or a reader of one."""

    def names(self) -> list[str]: ...

    def log(self, name: str) -> Readable: ...


@dataclass(frozen=True, slots=True)
class StoredRowsEstimate(Estimate):
    """An estimate of rows that are stored, and where they are: what divides them into parts."""

    extents: Sequence[Extent] = field(default=(), compare=False)


# Returns the parser of the typed rows of a recording.
Parsers = Callable[[str], tuple[LineParser, int | None]]


class RecordingSource(TwoModeSource[Recording]):
    """The source of `recording` requests.

    `listed` returns a recording whose name the store has just listed; by default the store does. `parsers` returns the
    parser of the typed rows of a recording, and the number before which its types hold all values (None: any).
    """

    request = Recording

    def __init__(self, store: ReadableStore, parsers: Parsers, listed: Callable[[str], Readable] | None = None) -> None:
        self._store = store
        self._parsers = parsers
        self._listed = listed or store.log

    async def _open(self, request: Recording, mode: Mode) -> Reading:
        begun = await mode.run(self._begin, request, discard=lambda begun: begun.batches.close())
        rest = None if begun.found else mode.each(begun.batches)
        return Reading(begun.rows.schema, rest, begun.summary, first=begun.first)

    def describe(self, request: Recording) -> Estimate:
        """Return the schema, and the number of rows if it is known.

        It is known if each row is a chunk (`bytes`), and the range is not given in times.
        """
        log = self._store.log(request.name)
        parser, _ = self._parser(request)
        schema = _rows_of(request, parser).schema
        extents = log.extents(range_of(request))
        if (
            parser is not None
            or request.format != "bytes"
            or request.from_time
            or request.to_time
            or request.since_seconds is not None
        ):
            return StoredRowsEstimate(schema, extents=extents)
        rows = sum(extent.rows for extent in extents)
        if request.limit_rows is not None:
            rows = min(rows, request.limit_rows)
        return StoredRowsEstimate(schema, rows, extents=extents)

    def requests(self, takes: Takes) -> Iterator[tuple[Recording, Estimate]]:
        """Yield a request for each whole recording. None if they are in NATS, and it cannot be used at the moment."""
        schema = None
        try:
            for name in filter(takes, self._store.names()):
                request = Recording(name=name)
                schema = schema or _rows_of(request, None).schema
                extents = self._listed(name).extents()
                yield request, StoredRowsEstimate(schema, sum(extent.rows for extent in extents), extents=extents)
        except TransportError as error:  # what else there is can still be listed
            log.warning("recordings cannot be listed", reason=str(error))

    def parts(self, request: Recording, known: Estimate) -> Parts[Recording]:
        """Divide `request` into requests for parts of about `PART_BYTES` that are stored together, in order.

        Only `bytes` can be divided: in the other formats a line may continue from one part to the next. `known` is what
        `describe` or `requests` has returned.
        """
        assert isinstance(known, StoredRowsEstimate)
        whole = Parts([Part(request)])
        if (
            request.as_ is not None
            or request.format != "bytes"
            or request.limit_rows is not None
            or request.since_seconds is not None
        ):
            return whole
        ends: list[int] = []
        size = 0
        for extent in known.extents:
            size += extent.bytes
            if size >= PART_BYTES:
                ends.append(extent.last)
                size = 0
        # The last part has no end of its own: it also covers rows that are recorded later.
        ends = ends if size else ends[:-1]
        if not ends:
            return whole
        firsts = [request.from_seq, *(end + 1 for end in ends)]
        return Parts(
            [
                Part(request.model_copy(update={"from_seq": first, "to_seq": last}))
                for first, last in zip(firsts, [*ends, request.to_seq], strict=True)
            ]
        )

    def _begin(self, request: Recording) -> _Begun:
        """Read the first rows. `RequestError` for a request that is wrong, `UnknownName` for its name."""
        log, range_ = self._store.log(request.name), range_of(request)
        parser, end = self._parser(request)
        rows = _rows_of(request, parser)
        if end is not None:
            range_ = replace(range_, until_seq=end - 1 if range_.until_seq is None else min(range_.until_seq, end - 1))
        if isinstance(rows, RecordedLines):
            rows.begin(_begins_line(log, range_))
        found: dict[str, Any] = {}
        batches = _batches(rows, found, log, range_)
        return _Begun(rows, found, next(batches), batches)

    def _parser(self, request: Recording) -> tuple[LineParser | None, int | None]:
        if request.as_ is None:
            return None, None
        require_own_layout(request)
        return self._parsers(request.name)


class _Begun(NamedTuple):
    """A reading whose `first` rows have been read. `found` is empty until `batches` have been read to their end."""

    rows: Rows
    found: Mapping[str, Any]
    first: Batches
    batches: Generator[Batches, None, None]

    def summary(self) -> Summary:
        return {"ended": LIMIT if self.rows.full else COMPLETE, **self.rows.summary(), **self.found}


def range_of(request: Recording) -> Range:
    """Return the range of the log that a request asks for. `RequestError` for keys that contradict each other."""
    if request.since_seconds is not None and request.from_time is not None:
        raise RequestError("it cannot be combined with from_time", where="since_seconds", hint="Leave one of them out")
    start = request.from_time
    if request.since_seconds is not None:
        start = datetime.fromtimestamp(time.time() - request.since_seconds, UTC)
    if start is not None and request.to_time is not None and request.to_time < start:
        raise RequestError("the range ends before it begins", where="to_time", hint="Give a time after from_time")
    if request.from_seq is not None and request.to_seq is not None and request.to_seq < request.from_seq:
        raise RequestError("the range ends before it begins", where="to_seq", hint="Give a number from from_seq on")
    return Range(request.from_seq, request.to_seq, microseconds(start), microseconds(request.to_time))


def _begins_line(log: Readable, range_: Range) -> bool:
    """Return whether the first bytes of a range are known to begin a line: by a cut there, or by what came before."""
    with closing(log.read(range_)) as items:
        first = next((item for item in items if isinstance(item, NumberedRows) or item.why != Why.UNUSED), None)
    if not isinstance(first, NumberedRows):
        return False  # the range is empty, or begins with missing rows
    if cut := next(chunks_of(first)).cut:
        return cut in LINE_CUTS
    with closing(log.read(Range(max(0, first.first - LOOK_BACK_ROWS), first.first - 1))) as items:
        before = list(items) if first.first else []
    for item in reversed(before):
        if not isinstance(item, NumberedRows):
            return False
        for chunk in reversed(list(chunks_of(item))):
            if chunk.direction == "rx":
                return chunk.data.endswith(b"\n")
            if chunk.cut:
                return chunk.cut in LINE_CUTS
    return False


def _rows_of(request: Recording, parser: LineParser | None) -> Rows:
    """Return the object that makes the rows. `parser` is that of typed rows. `RequestError` for a wrong request."""
    return RecordedChunks(request) if parser is None and request.format == "bytes" else RecordedLines(request, parser)


def _batches(rows: Rows, found: dict[str, Any], log: Readable, range_: Range) -> Generator[Batches, None, None]:
    ready: Batches = []
    size = count = 0
    with closing(log.read(range_)) as items:
        for item in items:
            if rows.full:
                break
            batches = rows.add(item)
            ready += batches
            count += 1
            size += sum((each.batch if isinstance(each, Noted) else each).nbytes for each in batches)
            if size >= STEP_BYTES or count >= STEP_ITEMS:
                yield ready
                ready, size, count = [], 0, 0
    found["damage"] = list(log.damage())  # known now that everything was read
    yield ready + rows.finish()
