"""A flight whose endpoints are read side by side.

`ParallelRowStream` is a `RowStream` over several: at most `parallel` are open at a time, each with a thread that reads
ahead, `MAX_AHEAD_BYTES` in all. `ordered`, the rows of the first endpoint come first, then those of the second, and so
on; the others wait when the bytes are used up, so that many small parts go faster then than a few large ones. The
first endpoint that fails ends the whole with its error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from fastflight.client.meaning import understood
from fastflight.client.progress import Meter, Report
from fastflight.client.stream import (
    BESIDE,
    Missed,
    RowStream,
    Summary,
    exported,
    failed_devices,
    path_of,
    warn_if_incomplete,
)
from fastflight.concurrency.gather import Gather
from fastflight.errors import ProtocolError, RequestError, Stopped
from fastflight.service.source import held_bytes

if TYPE_CHECKING:
    import pandas as pd

# Eight endpoints have four of the server's largest batches waiting each.
MAX_AHEAD_BYTES = 64 * 1024 * 1024
# A thread and a stream at the server for each.
MAX_PARALLEL = 64
# For the threads of a stream that is left to end. One whose server has not answered yet ends when it does.
LEAVE_SECONDS = 1.0

Open = Callable[[], RowStream]


class ParallelRowStream:
    """Rows of several answers, as one. As `RowStream`; `gaps` are those of all."""

    def __init__(self, endpoints: Sequence[Open], parallel: int, ordered: bool) -> None:
        """Open the first of `endpoints`, and read. `RequestError` for a `parallel` that cannot be."""
        if not 1 <= parallel <= MAX_PARALLEL:
            raise RequestError(f"{parallel} endpoints at a time", where="parallel", hint=f"1 to {MAX_PARALLEL}")
        self._endpoints = _OpenEndpoints(len(endpoints))
        first = self._endpoints.opened(0, endpoints[0]())
        self.schema: pa.Schema = first.schema
        self._meter = Meter(None)
        self._cancelled = False
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
        """What the servers said at the end: counts added up, lists joined, and each answer's own in `endpoints`."""
        return combined(self._endpoints.summaries())

    @property
    def gaps(self) -> list[Missed]:
        """Of live sessions: the traffic missed so far, because this was too slow or asked too late."""
        return self._endpoints.gaps()

    @property
    def missed(self) -> tuple[int, int]:
        """As `RowStream.missed`, of all."""
        return self._endpoints.missed()

    @property
    def recording(self) -> str:
        """As `RowStream.recording`; what is live is not divided."""
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
                return
            self._meter.add(batch)
            yield batch

    @property
    def failed(self) -> dict[str, str]:
        """As `RowStream.failed`."""
        return failed_devices(self.summary)

    def to_arrow(self) -> pa.Table:
        """As `RowStream.to_arrow`."""
        table = pa.Table.from_batches(list(self), self.schema)
        warn_if_incomplete(self.summary)
        return table

    def to_pandas(self) -> pd.DataFrame:
        """As `to_arrow`, as one DataFrame."""
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """As `RowStream.__arrow_c_stream__`."""
        return exported(self, requested_schema)

    def cancel(self) -> None:
        """Stop all endpoints. From any thread; a thread that is reading gets `Stopped`."""
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
        if hasattr(self, "_batches"):  # the threads would wait for ever for somebody to take their batches
            self.cancel()


class _OpenEndpoints:
    """The streams of the endpoints that have been opened, and their summaries."""

    def __init__(self, endpoints: int) -> None:
        self._changed = threading.Lock()
        self._streams: dict[int, RowStream] = {}
        self._endpoints = endpoints
        self._cancelled = False

    def opened(self, number: int, stream: RowStream) -> RowStream:
        with self._changed:
            self._streams[number] = stream
            cancelled = self._cancelled
        if cancelled:
            stream.cancel()
        return stream

    def summaries(self) -> list[Summary]:
        with self._changed:
            streams = [self._streams[number] for number in sorted(self._streams)]
        if len(streams) < self._endpoints:
            raise RequestError("the summary comes with the last batch", hint="Read the stream to its end first")
        return [stream.summary for stream in streams]

    def missed(self) -> tuple[int, int]:
        with self._changed:
            counts = [stream.missed for stream in self._streams.values()]
        return sum(gaps for gaps, _ in counts), sum(chunks for _, chunks in counts)

    def gaps(self) -> list[Missed]:
        with self._changed:
            return [gap for number in sorted(self._streams) for gap in self._streams[number].gaps]

    def cancel(self) -> None:
        with self._changed:
            self._cancelled = True
            streams = list(self._streams.values())
        for stream in streams:
            stream.cancel()


def combined(summaries: Sequence[Summary]) -> dict[str, Any]:
    """What several answers said, as one: counts are sums, lists are joined, the duration is the longest."""
    whole: dict[str, Any] = {}
    with understood(BESIDE):
        for summary in summaries:
            for key, value in summary.items():
                if key == "duration_seconds":
                    whole[key] = max(whole.get(key, 0.0), value)
                elif isinstance(value, int) and not isinstance(value, bool):
                    whole[key] = whole.get(key, 0) + value
                elif isinstance(value, list):
                    whole[key] = [*whole.get(key, ()), *value]
    endpoints: list[Mapping[str, Any]] = list(summaries)
    return {**whole, "endpoints": endpoints}


def _rows(lanes: _OpenEndpoints, number: int, endpoint: Open, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of one endpoint, in its own thread."""
    stream = lanes.opened(number, endpoint())
    if not stream.schema.equals(schema):
        stream.cancel()
        raise ProtocolError("an endpoint has other columns than the first", hint="Read the whole with one stream")
    yield from stream
