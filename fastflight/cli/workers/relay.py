"""An answer of a worker, passed on as it comes: its batches, what is noted among them, its summary.

A worker's stream is read by a thread, ahead of whoever takes it, bounded by bytes. Closing what is given cancels the
stream at the worker. A stream that ends without its summary, or with another count of rows, is an error here.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
from pyarrow import flight

from fastflight.cli.workers.pool import Worker
from fastflight.client.failure import typed_errors
from fastflight.client.stream import NOTES
from fastflight.concurrency import Governor, HandIn, off_loop
from fastflight.concurrency.gather import Gather
from fastflight.errors import ProtocolError
from fastflight.service.source import Noted, Summary
from fastflight.service.weight import weight
from fastflight.service.wire import parse
from fastflight.tables.bare import empty

Item: TypeAlias = pa.RecordBatch | Noted

# What waits between a worker's stream and the front's: two full messages, so that neither waits for a turn.
AHEAD_BYTES = 4 * 1024 * 1024
# What the front says of its own answer.
OWN_METADATA = (b"fastflight.request", b"fastflight.path")
OWN_TRAILER = ("rows", "duration_seconds")


class Relay:
    """One answer. Made once its schema has come; iterate it once, or `cancel` it from any thread."""

    def __init__(
        self, reader: flight.FlightStreamReader, worker: Worker, where: str, told: Callable[[], None] | None = None
    ) -> None:
        """`told` is called when the worker has said its last word."""
        self._reader = reader
        self._worker = worker
        self._where = where
        self._told = told
        self._rows = 0
        self._trailer: Summary | None = None
        with worker.connected(where) as connection, typed_errors(connection.location):
            schema: pa.Schema = reader.schema
        kept = {key: value for key, value in (schema.metadata or {}).items() if key not in OWN_METADATA}
        self.schema = schema.with_metadata(kept or None)

    def __iter__(self) -> Iterator[Item]:
        location = self._worker.location
        while True:
            try:
                with self._worker.connected(self._where), typed_errors(location):
                    chunk = self._reader.read_chunk()
            except StopIteration:
                break
            item = self._item(chunk)
            if item is not None:
                yield item
        told = self.summary_told()
        if told.get("rows") != self._rows:
            raise ProtocolError(f"{self._rows} rows came, the worker sent {told.get('rows')}", where=self._where)

    def summary(self) -> Summary:
        """What the worker said in the end, but for what the front says itself."""
        return {key: value for key, value in self.summary_told().items() if key not in OWN_TRAILER}

    def summary_told(self) -> Summary:
        """The worker's last word."""
        if self._trailer is None:
            raise ProtocolError("the worker's answer ended without its summary", where=self._where)
        return self._trailer

    def cancel(self) -> None:
        """Nobody wants more of it."""
        self._reader.cancel()

    def close(self) -> None:
        """It has ended, or nobody wants more of it. For the thread that iterates."""
        self.cancel()

    def _item(self, chunk: flight.FlightStreamChunk) -> Item | None:
        batch = chunk.data
        if batch is not None:
            self._rows += batch.num_rows
        if chunk.app_metadata is None:
            return batch
        note = parse(chunk.app_metadata.to_pybytes(), "a worker's note")
        if any(key in note for key in NOTES):
            return Noted(empty(self.schema) if batch is None else batch, note)
        self._trailer = note
        if self._told is not None:
            self._told()
        return batch if batch is not None and batch.num_rows else None


class Relayed(Protocol):
    """What is passed on: a relay, or an exchange."""

    @property
    def schema(self) -> pa.Schema: ...

    def __iter__(self) -> Iterator[Item]: ...

    def summary(self) -> Summary: ...

    def cancel(self) -> None: ...

    def close(self) -> None: ...


class Batches(Iterator[Item]):
    """What is passed on, for a thread, with a sign of life while there is nothing; `close` ends both sides."""

    def __init__(self, relayed: Relayed, governor: Governor) -> None:
        self._relayed = relayed
        silence = empty(relayed.schema)
        self._gather: Gather[Item] = Gather(
            [lambda: relayed],
            limit=1,
            max_bytes=AHEAD_BYTES,
            size_of=weight,
            idle=lambda: silence,
            name="forward",
            governor=governor,
        )

    def __next__(self) -> Item:
        return next(self._gather)

    def close(self) -> None:
        self._relayed.cancel()
        self._gather.close()


class AsyncBatches(AsyncIterator[Item]):
    """The same for a coroutine: what `begin` gives is opened, read and closed by one thread; `opened` first."""

    def __init__(self, begin: Callable[[], Relayed], governor: Governor) -> None:
        self._begin = begin
        self._handed: HandIn[Any] = HandIn(asyncio.get_running_loop(), AHEAD_BYTES, governor=governor)
        self._lock = threading.Lock()
        self._relayed: Relayed | None = None
        self._closed = False
        self._thread = threading.Thread(
            target=contextvars.copy_context().run, args=(self._read,), name="forward", daemon=True
        )
        self._thread.start()

    async def opened(self) -> Relayed:
        """What is passed on, once its schema has come, or the worker's error."""
        try:
            relayed: Relayed = await anext(self._handed)
        except BaseException:
            await self.aclose()
            raise
        return relayed

    async def __anext__(self) -> Item:
        item: Item = await anext(self._handed)
        return item

    async def aclose(self) -> None:
        with self._lock:
            self._closed = True
            relayed = self._relayed
        await self._handed.aclose()
        if relayed is not None:  # else it is cancelled as soon as it is there
            relayed.cancel()
            await off_loop(self._thread.join)

    def _read(self) -> None:
        try:
            with closing(self._begin()) as relayed:
                with self._lock:
                    self._relayed = relayed
                    closed = self._closed
                if not closed:
                    self._handed.put(relayed, 0)
                    for item in relayed:
                        self._handed.put(item, weight(item))
        except BaseException as error:
            self._handed.fail(error)
        else:
            self._handed.finish()
