"""`ParallelRowStream`: the endpoints of one flight, read in parallel.

At most `parallel` endpoints are open at a time. Each has a thread that reads ahead, all together up to
`MAX_AHEAD_BYTES`. With `ordered`, the rows of the first endpoint come first, then those of the second, and so on: the
other endpoints wait when their buffers are full, so many small endpoints are read faster than a few large ones.
The first endpoint that fails ends the whole stream with its error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from fastflight.client.progress import Meter
from fastflight.client.stream import AnswerRows, RowStream, Summary, warn_if_incomplete
from fastflight.client.validation import ABOUT_ROWS, validating
from fastflight.concurrency.gather import Gather
from fastflight.errors import ProtocolError, RequestError, Stopped
from fastflight.gap import Gap
from fastflight.service.source import held_bytes
from fastflight.tables.summary import combined as combined_files

# Enough for eight endpoints with four of the server's largest batches each.
MAX_AHEAD_BYTES = 64 * 1024 * 1024
# Each endpoint takes a thread here and a stream at the server.
MAX_PARALLEL = 64
# How long leaving a stream waits for its threads. A thread whose server has not answered yet ends when it does.
LEAVE_SECONDS = 1.0

Open = Callable[[], RowStream]


class ParallelRowStream(AnswerRows):
    """The rows of several answers as one stream, with the interface of `RowStream`."""

    def __init__(self, endpoints: Sequence[Open], parallel: int, ordered: bool) -> None:
        """Open the first endpoint and begin to read. Raises `RequestError` if `parallel` is out of range."""
        if not 1 <= parallel <= MAX_PARALLEL:
            raise RequestError(f"{parallel} endpoints at a time", where="parallel", hint=f"1 to {MAX_PARALLEL}")
        self._count = len(endpoints)
        self._endpoints = _OpenEndpoints()
        first = self._endpoints.add(0, endpoints[0]())
        self.schema: pa.Schema = first.schema
        self._meter = Meter(None)
        self._cancelled = False
        # Whether the caller has taken all rows.
        self._is_ended = False
        jobs = [partial(_rows, self._endpoints, 0, lambda: first, self.schema)]
        jobs += [
            partial(_rows, self._endpoints, number, endpoint, self.schema)
            for number, endpoint in enumerate(endpoints[1:], start=1)
        ]
        self._batches = Gather(
            jobs,
            limit=parallel,
            max_bytes=MAX_AHEAD_BYTES,
            size_of=held_bytes,
            ordered=ordered,
            name="fastflight-endpoint",
        )

    @property
    def summary(self) -> Summary:
        """The servers' final messages as one: counts added up, lists joined, and each message itself in `endpoints`."""
        if not self._is_ended:  # the threads may have read all rows already
            raise RequestError("the summary comes with the last batch", hint="Read the stream to its end first")
        streams = self._endpoints.opened()
        if len(streams) < self._count:
            raise RequestError("the summary comes with the last batch", hint="Read the stream to its end first")
        return combined([stream.summary for stream in streams])

    @property
    def gaps(self) -> list[Gap]:
        """The gaps of all endpoints; see `RowStream.gaps`."""
        return [gap for stream in self._endpoints.opened() for gap in stream.gaps]

    @property
    def missed(self) -> tuple[int, int]:
        """The sums of all endpoints; see `RowStream.missed`."""
        counts = [stream.missed for stream in self._endpoints.opened()]
        return sum(gaps for gaps, _ in counts), sum(rows for _, rows in counts)

    @property
    def recording(self) -> str:
        """Always empty: a live session has a single endpoint."""
        return ""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while True:
            try:
                batch = next(self._batches, None)
            except Exception as error:
                self._endpoints.cancel()
                if self._cancelled:
                    raise Stopped("this stream was cancelled") from error
                raise
            if self._cancelled:
                raise Stopped("this stream was cancelled")
            if batch is None:
                self._is_ended = True
                warn_if_incomplete(self.summary)
                return
            self._meter.add(batch)
            yield batch

    def cancel(self) -> None:
        """Stop all endpoints. Can be called from any thread; a thread that is reading gets `Stopped`."""
        self._cancelled = True
        self._batches.stop()
        self._endpoints.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.cancel()
        self._batches.close(LEAVE_SECONDS)

    def __del__(self) -> None:
        if hasattr(self, "_batches"):  # otherwise the threads would wait for a consumer for ever
            self.cancel()


class _OpenEndpoints:
    """The streams of the endpoints opened so far. Streams added after `cancel` are cancelled."""

    def __init__(self) -> None:
        self._changed = threading.Lock()
        self._streams: dict[int, RowStream] = {}
        self._cancelled = False

    def add(self, number: int, stream: RowStream) -> RowStream:
        with self._changed:
            self._streams[number] = stream
            cancelled = self._cancelled
        if cancelled:
            stream.cancel()
        return stream

    def opened(self) -> list[RowStream]:
        """Return the streams in the order of their endpoints."""
        with self._changed:
            return [self._streams[number] for number in sorted(self._streams)]

    def cancel(self) -> None:
        with self._changed:
            self._cancelled = True
        for stream in self.opened():
            stream.cancel()


def combined(summaries: Sequence[Summary]) -> dict[str, Any]:
    """Combine summaries: counts are added up, lists joined, the duration is the longest. `endpoints` lists them all."""
    whole: dict[str, Any] = {}
    with validating(ABOUT_ROWS):
        for summary in summaries:
            for key, value in summary.items():
                if key == "duration_seconds":
                    whole[key] = max(whole.get(key, 0.0), value)
                elif isinstance(value, int) and not isinstance(value, bool):
                    whole[key] = whole.get(key, 0) + value
                elif isinstance(value, list):
                    whole[key] = [*whole.get(key, ()), *value]
        whole |= combined_files(summaries)
    endpoints: list[Mapping[str, Any]] = list(summaries)
    return {**whole, "endpoints": endpoints}


def _rows(streams: _OpenEndpoints, number: int, endpoint: Open, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Open an endpoint and yield its rows. Runs in the endpoint's own thread."""
    stream = streams.add(number, endpoint())
    if not stream.schema.equals(schema):
        stream.cancel()
        raise ProtocolError("an endpoint has other columns than the first", hint="Read the whole with one stream")
    for batch, _ in stream.pieces():  # not by `__iter__`, which would warn for each endpoint
        if batch.num_rows:
            yield batch
