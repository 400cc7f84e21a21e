"""An answer that is read batch by batch, while the device is still sending.

`RowStream` is iterated once: rows come out as record batches, then `summary` holds what the server said in the end.
A stream that ends without the server's summary, or with another count of rows, raises: it is never a short table.
Leave it early through its context manager or `cancel()`, and the server stops reading the device.
"""

from __future__ import annotations

import contextlib
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

import pyarrow as pa
from pyarrow import flight

from fastflight.client.failure import typed_errors
from fastflight.client.meaning import message, text, understood, whole
from fastflight.client.progress import Meter, Report
from fastflight.errors import FastFlightError, IncompleteWarning, ProtocolError, RequestError, Stopped
from fastflight.tables.bare import empty

if TYPE_CHECKING:
    import pandas as pd

PATH_KEY = b"fastflight.path"

Summary = Mapping[str, Any]
Note = Mapping[str, Any]

# What a live stream, or one of many devices or files, says between rows; any other message is the server's last.
NOTES = ("gap", "outage", "recording", "alignments", "failure", "digests", "set_aside")
BESIDE = "what the server says of its rows"
# The newest that are kept; a reader that is always too slow would gather them without end.
MAX_KEPT_GAPS = 1000


@dataclass(frozen=True, slots=True)
class Missed:
    """Traffic that a stream could not give: the chunks `first` to `last`, both included.

    Of a recording: `reason` is `trimmed`, `damaged` or `never written`, and `where` the place of damage.
    """

    first: int
    last: int
    reason: str = ""
    where: str = ""


class StreamOutcome:
    """What stands at the end of a stream: the server's summary, checked against the rows that came."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._rows = 0
        self._summary: Summary | None = None
        self._ended = False
        self.gaps: deque[Missed] = deque(maxlen=MAX_KEPT_GAPS)
        self._gaps = 0
        self._chunks = 0
        self.recording = ""

    @property
    def is_told(self) -> bool:
        """Whether the server has said its last word."""
        return self._summary is not None

    @property
    def missed(self) -> tuple[int, int]:
        """Gaps, and the chunks in them: of all, also where the gaps themselves are no longer kept."""
        return self._gaps, self._chunks

    @property
    def is_whole(self) -> bool:
        """Whether the stream has ended, and all rows have come."""
        return self._ended

    @property
    def summary(self) -> Summary:
        if self._summary is None or not self._ended:
            raise RequestError("the summary comes with the last batch", hint="Read the stream to its end first")
        return self._summary

    def take(self, chunk: flight.FlightStreamChunk) -> tuple[pa.RecordBatch | None, Note | None]:
        """The batch of a chunk and what is said at its place, if anything; the server's last word is kept instead."""
        note: Note | None = None
        if chunk.app_metadata is not None:
            told = message(chunk.app_metadata.to_pybytes(), BESIDE, self._location)
            if any(name in told for name in NOTES):
                note = told
                if "recording" in told:
                    self.recording = str(told["recording"])
                elif "gap" in told:
                    gap = _missed(told["gap"], self._location)
                    self.gaps.append(gap)
                    self._gaps += 1
                    self._chunks += gap.last - gap.first + 1
                elif "set_aside" in told:
                    _warn_of_misfits(told, self._location)
            else:
                self._summary = told
        if chunk.data is not None:
            self._rows += chunk.data.num_rows
        return chunk.data, note

    def end(self) -> None:
        """The stream has ended without an error: see whether it is whole."""
        if self._summary is None:
            raise ProtocolError(
                "the answer ended without the server's summary: rows may be missing", where=self._location
            )
        told = self._summary.get("rows", self._rows)
        if told != self._rows:
            raise ProtocolError(f"{self._rows} rows came, the server sent {told}", where=self._location)
        self._ended = True


class RowStream:
    """Rows of one answer. `schema` is known from the start; iterate, or ask for all with `to_arrow`/`to_pandas`."""

    def __init__(
        self, reader: flight.FlightStreamReader, location: str, told: Callable[[], None] | None = None
    ) -> None:
        """`told` is called when the server has said its last word; only then will it end the stream."""
        self._reader = reader
        self._told = told
        self._location = location
        self._meter = Meter(None)
        self._outcome = StreamOutcome(location)
        self._cancelled = False
        self._finished = False
        with typed_errors(location):
            self.schema: pa.Schema = reader.schema

    def reporting(self, report: Report | None, total_bytes: int | None = None) -> Self:
        """Call `report` for each batch from now on."""
        self._meter = Meter(report, total_bytes)
        return self

    @property
    def path(self) -> str:
        """`sync` or `async`: the way that the rows took through the server, as the server reports it."""
        return path_of(self.schema)

    @property
    def summary(self) -> Summary:
        """What the server said at the end: rows, bytes, sha256, rows set aside, duration."""
        return self._outcome.summary

    @property
    def gaps(self) -> list[Missed]:
        """Of a session, live or recorded: the traffic missed so far. Live, this was too slow or asked too late.

        Of more than `MAX_KEPT_GAPS` these are the newest; `missed` has all.
        """
        return list(self._outcome.gaps)

    @property
    def missed(self) -> tuple[int, int]:
        """How many gaps there were so far, and how many chunks are missing in them."""
        return self._outcome.missed

    @property
    def recording(self) -> str:
        """Of a live session: what was last said of its being recorded, as in `Device`; empty while nothing changes."""
        return self._outcome.recording

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch, _ in self.pieces():
            if batch.num_rows:
                self._meter.add(batch)
                yield batch

    def pieces(self) -> Generator[tuple[pa.RecordBatch, Note | None], None, None]:
        """Each batch with what is said at its place, for who passes both on; one without either is a sign of life."""
        while not self._finished:
            if self._cancelled:
                raise Stopped("this stream was cancelled", where=self._location)
            try:
                with typed_errors(self._location):
                    chunk = self._reader.read_chunk()
            except StopIteration:
                self._finished = True
                self._outcome.end()
                return
            except FastFlightError as error:
                if self._cancelled:
                    raise Stopped("this stream was cancelled", where=self._location) from error
                self._finished = True
                raise
            batch, note = self._outcome.take(chunk)
            is_last = chunk.app_metadata is not None and note is None
            if self._told is not None and self._outcome.is_told:
                self._told()
            if batch is None:
                batch = empty(self.schema)
            if batch.num_rows or not is_last:
                yield batch, note
        if not self._outcome.is_whole:  # who asks again after an error must not take nothing for the rest
            raise ProtocolError("this stream has failed: rows are missing", where=self._location, hint="Ask again")

    @property
    def failed(self) -> dict[str, str]:
        """Of many devices: those that could not be read, and why. Known at the end."""
        return failed_devices(self.summary)

    def to_arrow(self) -> pa.Table:
        """The rest of the rows as one table.

        `IncompleteWarning` if devices could not be read, or if most rows do not fit the schema.
        """
        table = pa.Table.from_batches(list(self), self.schema)
        warn_if_incomplete(self.summary)
        return table

    def to_pandas(self) -> pd.DataFrame:
        """As `to_arrow`, as one DataFrame."""
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rest of the rows for DuckDB, Polars, pandas and others, which read them as they come, once."""
        return exported(self, requested_schema)

    def cancel(self) -> None:
        """Stop. From any thread; a thread that is reading gets `Stopped`."""
        if not self._finished:
            self._cancelled = True
            self._reader.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.cancel()


def path_of(schema: pa.Schema) -> str:
    """The path that the server reports in a schema's metadata; empty where it reports none."""
    path: bytes = (schema.metadata or {}).get(PATH_KEY, b"")
    return path.decode(errors="replace")


class AnswerRows(Protocol):
    """The rows of one answer, or of several."""

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def summary(self) -> Summary: ...

    def __iter__(self) -> Iterator[pa.RecordBatch]: ...


def exported(rows: AnswerRows, requested_schema: object) -> object:
    """The rows as a stream of Arrow's C interface. To read it again is an error, and no empty table."""

    def batches() -> Iterator[pa.RecordBatch]:
        if _is_read(rows):
            raise RequestError("these rows have been read", hint="Ask again, or keep them as a table: to_arrow()")
        yield from rows
        warn_if_incomplete(rows.summary)

    return pa.RecordBatchReader.from_batches(rows.schema, batches()).__arrow_c_stream__(requested_schema)


def _is_read(rows: AnswerRows) -> bool:
    with contextlib.suppress(RequestError):  # the summary comes with the last batch
        return bool(rows.summary)
    return False


def failed_devices(summary: Summary) -> dict[str, str]:
    """Of a fleet's answer: the devices that could not be read, and why."""
    with understood(BESIDE):
        return {text(told["device"]): _reason(told) for told in summary.get("failed", ())}


def warn_if_incomplete(summary: Summary) -> None:
    """Warn if devices could not be read, or if most rows do not fit."""
    if failed := failed_devices(summary):
        listed = "; ".join(f"{device}: {why}" for device, why in failed.items())
        warnings.warn(f"{len(failed)} devices could not be read: {listed}", IncompleteWarning, stacklevel=3)
    with understood(BESIDE):
        rejected = whole(summary.get("rejected", 0))
        fitting = whole(summary.get("rows", 0))
        reason = next((text(row["reason"]) for row in summary.get("rejected_rows", ())), "")
    if rejected > fitting:
        warnings.warn(_misfits(rejected, fitting, reason), IncompleteWarning, stacklevel=3)


def _warn_of_misfits(told: Mapping[str, Any], location: str) -> None:
    """Warn at once: of a live session nothing else may come."""
    with understood("rows that the server set aside", location):
        given = told["set_aside"]
        device = f"{text(told['device'])}: " if "device" in told else ""
        words = device + _misfits(whole(given["rows"]), whole(given["fitting"]), text(given["reason"]))
    warnings.warn(words, IncompleteWarning, stacklevel=2)


def _misfits(rejected: int, fitting: int, reason: str) -> str:
    fit = f"{fitting:,} fit" if fitting else "none fits"
    return f"{rejected:,} rows are set aside, {fit}: {reason}".removesuffix(": ")


def _reason(told: Mapping[str, Any]) -> str:
    return f"{text(told['what'])}. {text(told.get('hint', ''))}".rstrip(". ")


def _missed(given: Any, location: str) -> Missed:
    with understood("a gap that the server tells of", location):
        reason, where = text(given.get("reason", "")), text(given.get("where", ""))
        return Missed(whole(given["first"]), whole(given["last"]), reason, where)
