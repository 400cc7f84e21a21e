"""`RowStream`: an answer that is read batch by batch, while the device is still sending.

Iterate it once: it yields record batches, and then `summary` holds the server's final message. A stream that ends
without this message, or with a different number of rows, raises an error, so a table is never silently short. To stop
early, leave the stream's context manager or call `cancel()`; the server then stops reading the device.
"""

from __future__ import annotations

import contextlib
import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
from pyarrow import flight

from fastflight.client.failure import typed_errors
from fastflight.client.notebook import reading_bar
from fastflight.client.progress import Meter, Report
from fastflight.client.validation import ABOUT_ROWS, Note, is_note, message, text, validating, whole
from fastflight.errors import FastFlightError, ProtocolError, RequestError, Stopped, quantity
from fastflight.errors import IncompleteWarning as IncompleteWarning
from fastflight.gap import Gap
from fastflight.tables.bare import empty
from fastflight.tables.summary import one_line

if TYPE_CHECKING:
    import pandas as pd

# Unless the user's own filters say otherwise, each answer warns, and not only the first with the same words.
warnings.simplefilter("always", IncompleteWarning, append=True)

PATH_KEY = b"fastflight.path"

Summary = Mapping[str, Any]
# How many gaps are stored, the newest ones. A reader that is always too slow would collect them without end.
MAX_KEPT_GAPS = 1000


class AnswerRows(ABC):
    """What `RowStream` and `ParallelRowStream` have in common. The rows can be read once, in one of these ways."""

    schema: pa.Schema
    _meter: Meter

    @property
    @abstractmethod
    def summary(self) -> Summary: ...

    @abstractmethod
    def __iter__(self) -> Iterator[pa.RecordBatch]: ...

    def reporting(self, report: Report | None, total_bytes: int | None = None) -> Self:
        """Call `report`, if there is one, for each batch from now on, with `total_bytes` as the expected total."""
        self._meter = Meter(report, total_bytes)
        return self

    @property
    def path(self) -> str:
        """`sync` or `async`: the path that the rows took through the server, as reported by the server."""
        return path_of(self.schema)

    @property
    def failed(self) -> dict[str, str]:
        """The devices of a fleet that could not be read, each with the reason. Known at the end of the stream."""
        return failed_devices(self.summary)

    def to_arrow(self) -> pa.Table:
        """Read the remaining rows into one table.

        In a notebook, a read of more than a second shows a bar.
        """
        with reading_bar(self._meter.report) as self._meter.report:
            return pa.Table.from_batches(list(self), self.schema)

    def to_pandas(self) -> pd.DataFrame:
        """Read the remaining rows into one DataFrame, like `to_arrow`."""
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Export the remaining rows to DuckDB, Polars, pandas and others, which read them as they arrive, once."""

        def batches() -> Iterator[pa.RecordBatch]:
            if self._is_read():
                raise RequestError("these rows have been read", hint="Ask again, or keep them as a table: to_arrow()")
            with reading_bar(self._meter.report) as self._meter.report:
                yield from self

        return pa.RecordBatchReader.from_batches(self.schema, batches()).__arrow_c_stream__(requested_schema)

    def _is_read(self) -> bool:
        with contextlib.suppress(RequestError):  # no summary before the last batch
            return bool(self.summary)
        return False


class RowStream(AnswerRows):
    """The rows of one answer. `schema` is known from the start. Iterate, or call `to_arrow` or `to_pandas`.

    At the end, an `IncompleteWarning` tells of devices that could not be read, and of whatever in a file could not
    become a row or a value, or was read with a doubt. `summary` has the counts.
    """

    # The recording state that a live session reported last, as in `Device`; empty until it first changes.
    recording: str = ""

    def __init__(
        self, reader: flight.FlightStreamReader, location: str, on_summary: Callable[[], None] | None = None
    ) -> None:
        """`on_summary` is called when the server's summary has come, before the stream ends."""
        self._reader = reader
        self._on_summary = on_summary
        self._location = location
        self._meter = Meter(None)
        self._rows = 0
        self._summary: Summary | None = None
        self._gaps: deque[Gap] = deque(maxlen=MAX_KEPT_GAPS)
        self._gap_count = 0
        self._lost_rows = 0
        self._cancelled = False
        # No more is read: after the end, or after an error.
        self._finished = False
        # The stream has ended, and all rows have arrived.
        self._is_whole = False
        with typed_errors(location):
            self.schema: pa.Schema = reader.schema

    @property
    def summary(self) -> Summary:
        """The server's final message: rows, bytes, sha256, rejected rows, duration.

        Raises `RequestError` before the stream has been read to its end.
        """
        if self._summary is None or not self._is_whole:
            raise RequestError("the summary comes with the last batch", hint="Read the stream to its end first")
        return self._summary

    @property
    def gaps(self) -> list[Gap]:
        """The gaps so far in a live session or a recording; only the newest `MAX_KEPT_GAPS`.

        A live session has gaps if the client reads too slowly or asks too late, or the line was lost. `missed` counts
        all gaps.
        """
        return list(self._gaps)

    @property
    def missed(self) -> tuple[int, int]:
        """The number of gaps so far, and the number of rows missing in them, as far as it is known."""
        return self._gap_count, self._lost_rows

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch, _ in self.pieces():
            if batch.num_rows:
                self._meter.add(batch)
                yield batch
        warn_if_incomplete(self.summary)

    def pieces(self) -> Generator[tuple[pa.RecordBatch, Note | None], None, None]:
        """Yield each batch with the note that came with it, if any.

        A batch without rows and without a note only shows that the stream is alive.
        """
        while not self._finished:
            if self._cancelled:
                raise Stopped("this stream was cancelled", where=self._location)
            try:
                with typed_errors(self._location):
                    chunk = self._reader.read_chunk()
            except StopIteration:
                self._finished = True
                self._check_whole()
                return
            except FastFlightError as error:
                if self._cancelled:
                    raise Stopped("this stream was cancelled", where=self._location) from error
                self._finished = True
                raise
            batch = chunk.data if chunk.data is not None else empty(self.schema)
            self._rows += batch.num_rows
            note = None if chunk.app_metadata is None else self._take_message(chunk.app_metadata.to_pybytes())
            is_last = chunk.app_metadata is not None and note is None
            if batch.num_rows or not is_last:
                yield batch, note
        if not self._is_whole:  # iterated again after an error
            raise ProtocolError("this stream has failed: rows are missing", where=self._location, hint="Ask again")

    def _take_message(self, body: bytes) -> Note | None:
        """Return a message about rows; None for the server's summary, which is stored."""
        content = message(body, ABOUT_ROWS, self._location)
        if not is_note(content):
            self._summary = content
            if self._on_summary is not None:
                self._on_summary()
            return None
        if "recording" in content:
            self.recording = str(content["recording"])
        elif "gap" in content:
            gap = _gap(content["gap"], self._location)
            self._gaps.append(gap)
            self._gap_count += 1
            self._lost_rows += gap.rows or 0
        elif "mostly_rejected" in content:
            _warn_of_misfits(content, self._location)
        return content

    def _check_whole(self) -> None:
        """Raise `ProtocolError` unless the summary and all rows have come."""
        if self._summary is None:
            raise ProtocolError(
                "the answer ended without the server's summary: rows may be missing", where=self._location
            )
        sent = self._summary.get("rows", self._rows)
        if sent != self._rows:
            raise ProtocolError(f"{quantity(self._rows, 'row')} came, the server sent {sent}", where=self._location)
        self._is_whole = True

    def cancel(self) -> None:
        """Stop the stream. Can be called from any thread; a thread that is reading it gets `Stopped`."""
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
    """Return the path (`sync` or `async`) that the server reports in a schema's metadata; empty if it reports none."""
    path: bytes = (schema.metadata or {}).get(PATH_KEY, b"")
    return path.decode(errors="replace")


def failed_devices(summary: Summary) -> dict[str, str]:
    """Return the devices of a fleet that could not be read, each with the reason."""
    with validating(ABOUT_ROWS):
        return {text(failure["device"]): _reason(failure) for failure in summary.get("failed", ())}


def warn_if_incomplete(summary: Summary) -> None:
    """Warn with `IncompleteWarning` if devices could not be read, or if a summary has a line (`summary_line`)."""
    if failed := failed_devices(summary):
        listed = "; ".join(f"{device}: {why}" for device, why in failed.items())
        warnings.warn(f"{quantity(len(failed), 'device')} could not be read: {listed}", IncompleteWarning, stacklevel=3)
    if line := summary_line(summary):
        warnings.warn(line, IncompleteWarning, stacklevel=3)


def summary_line(summary: Summary) -> str:
    """Return one line about rejected rows, cells that became null, and notes; empty if there are none.

    The summary of a query has an entry for each table. The first and the last line of a session are often cut: rejected
    lines of a session are told only if most are rejected.
    """
    with validating(ABOUT_ROWS):
        if "next_seq" in summary and whole(summary.get("rejected", 0)) <= whole(summary.get("rows", 0)):
            summary = {key: value for key, value in summary.items() if not key.startswith("rejected")}
        tables = [(name, one_line(table)) for name, table in summary.get("tables", {}).items()]
        return "; ".join(filter(None, [one_line(summary), *(f"{name}: {line}" for name, line in tables if line)]))


def _warn_of_misfits(note: Note, location: str) -> None:
    """Warn at once: a live session may never send anything else."""
    with validating("rows that the server rejected", location):
        counts = note["mostly_rejected"]
        device = f"{text(note['device'])}: " if "device" in note else ""
        warning = device + _misfits(whole(counts["rows"]), whole(counts["fitting"]), text(counts["reason"]))
    warnings.warn(warning, IncompleteWarning, stacklevel=2)


def _misfits(rejected: int, fitting: int, reason: str) -> str:
    fit = f"{fitting:,} fit" if fitting else "none fits"
    return f"{quantity(rejected, 'row')} rejected, {fit}: {reason}".removesuffix(": ")


def _reason(failure: Mapping[str, Any]) -> str:
    return f"{text(failure['what'])}. {text(failure.get('hint', ''))}".rstrip(". ")


def _gap(details: Any, location: str) -> Gap:
    with validating("a gap that the server tells of", location):
        return Gap.of(details)
