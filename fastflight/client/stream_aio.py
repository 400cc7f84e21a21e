"""`AsyncRowStream`: the rows of an answer for an event loop.

Flight's Python client blocks, so each stream has its own thread, which reads a limited number of bytes ahead of the
consumer. Leaving the stream's context cancels it at the server.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from fastflight.client.notebook import reading_bar
from fastflight.client.parallel import ParallelRowStream
from fastflight.client.progress import Meter, Report
from fastflight.client.stream import RowStream, Summary
from fastflight.concurrency.channel import Channel
from fastflight.concurrency.offload import off_loop
from fastflight.errors import Stopped
from fastflight.gap import Gap
from fastflight.service.source import held_bytes

if TYPE_CHECKING:
    import pandas as pd

# How much a stream reads ahead of its consumer: two of the server's largest batches, so that neither side waits.
MAX_AHEAD_BYTES = 4 * 1024 * 1024


class AsyncRowStream:
    """The rows of one answer for one task, read ahead by a thread. Like `RowStream`; iterate it with `async for`."""

    def __init__(
        self, stream: RowStream | ParallelRowStream, report: Report | None, *, ahead_bytes: int = MAX_AHEAD_BYTES
    ) -> None:
        self._stream = stream
        self._meter = Meter(report)
        self._batches = Channel[pa.RecordBatch](ahead_bytes)
        self._cancelled = False
        self._reader = threading.Thread(
            target=_read_ahead, args=(stream, self._batches), name="fastflight-reader", daemon=True
        )
        self._reader.start()

    @property
    def schema(self) -> pa.Schema:
        return self._stream.schema

    @property
    def path(self) -> str:
        """`sync` or `async`: the path that the rows took through the server, as reported by the server."""
        return self._stream.path

    @property
    def summary(self) -> Summary:
        """See `RowStream.summary`."""
        return self._stream.summary

    @property
    def gaps(self) -> list[Gap]:
        """See `RowStream.gaps`."""
        return self._stream.gaps

    @property
    def missed(self) -> tuple[int, int]:
        """See `RowStream.missed`."""
        return self._stream.missed

    @property
    def recording(self) -> str:
        """See `RowStream.recording`."""
        return self._stream.recording

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> pa.RecordBatch:
        if self._cancelled:
            raise Stopped("this stream was cancelled")
        batch = await anext(self._batches)
        self._meter.add(batch)
        return batch

    @property
    def failed(self) -> dict[str, str]:
        """See `RowStream.failed`."""
        return self._stream.failed

    async def to_arrow(self) -> pa.Table:
        """Read the remaining rows into one table, like `RowStream.to_arrow`."""
        with reading_bar(self._meter.report) as self._meter.report:
            return pa.Table.from_batches([batch async for batch in self], self.schema)

    async def to_pandas(self) -> pd.DataFrame:
        """Read the remaining rows into one DataFrame, like `to_arrow`."""
        table = await self.to_arrow()
        frame: pd.DataFrame = await off_loop(table.to_pandas)
        return frame

    def cancel(self) -> None:
        """Stop the stream. A task that iterates over it gets `Stopped`."""
        self._cancelled = True
        self._stream.cancel()
        self._batches.cancel(Stopped("this stream was cancelled"))

    def __del__(self) -> None:
        if hasattr(self, "_reader"):  # otherwise the reader thread would wait for a consumer for ever
            self.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.cancel()
        await off_loop(self._reader.join)


def _read_ahead(stream: RowStream | ParallelRowStream, batches: Channel[pa.RecordBatch]) -> None:
    try:
        for batch in stream:
            batches.put(batch, held_bytes(batch))
    except BaseException as error:
        stream.cancel()
        batches.fail(error)
    else:
        batches.finish()
