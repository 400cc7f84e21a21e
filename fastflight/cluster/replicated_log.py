"""One log in JetStream, with the methods of `Log` of the embedded engine. See `replicated_store`."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Coroutine, Generator
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from fastflight.cluster.log_stream import State, subject_of
from fastflight.cluster.log_writer import MAX_BODY_BYTES, LogWriter, Part, Sending
from fastflight.cluster.replicated_parts import ReplicatedParts
from fastflight.cluster.replicated_reading import ReplicatedReading
from fastflight.cluster.replicated_statistics import extents, statistics, stored
from fastflight.errors import FastFlightError, StorageError, UnknownName
from fastflight.log import EVERYTHING, Extent, LogStatistics, Missing, NumberedRows, Range, StoredRows, Ticket
from fastflight.log.committer import Commit
from fastflight.log.content import Codec, log_number

T = TypeVar("T")


class LogStore(Sending, Protocol):
    """What a log needs of its store."""

    parts: ReplicatedParts

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work`, which runs on the loop of the connection."""


class ReplicatedLog:
    """One log of a `ReplicatedStore`. Any thread but the loop's may use it; `aappend` is for any loop."""

    def __init__(self, store: LogStore, name: str, state: State) -> None:
        self.name = name
        self.codec = Codec(pa.ipc.read_schema(pa.py_buffer(state.log.schema)))
        self.writer = LogWriter(store, name, self.codec)
        # The generation of the bucket of states that has this log's state; 0 if that is not known.
        self.generation = 0
        self._store = store

    @property
    def schema(self) -> pa.Schema:
        """The schema of its batches."""
        return self.codec.schema

    @property
    def next_seq(self) -> int:
        """The number that the next appended row gets."""
        while (number := self.writer.next_seq) is None:
            self._store.call(self.writer.look())
        return number

    async def anext_seq(self) -> int:
        """As `next_seq`, on the loop of the connection."""
        while (number := self.writer.next_seq) is None:
            await self.writer.look()
        return number

    def append(
        self, batch: pa.RecordBatch, *, expected: int | None = None, first: int | None = None, paused_until: int = 0
    ) -> Ticket:
        """As `Log.append`. Waits for NATS if the log's end is not known."""
        parts = self.writer.encode(batch)
        while True:
            ticket = self.writer.put(parts, expected, first, paused_until)
            if isinstance(ticket, Ticket):
                return ticket
            if ticket is None:
                self._store.call(self.writer.look())
            else:
                ticket.wait(None)

    async def aappend(
        self, batch: pa.RecordBatch, *, expected: int | None = None, first: int | None = None, paused_until: int = 0
    ) -> Ticket:
        """As `append`, on an event loop, which goes on while this waits."""
        parts: list[Part] = self.writer.encode(batch)
        while True:
            ticket = self.writer.put(parts, expected, first, paused_until)
            if isinstance(ticket, Ticket):
                return ticket
            if ticket is None:
                await asyncio.wrap_future(self._store.submit(self.writer.look()))
            else:
                await ticket.await_end()

    def check(self, batch: pa.RecordBatch) -> None:
        """Raise `DataError` if `append` would, because of the batch."""
        if batch.nbytes > MAX_BODY_BYTES // 2:
            self.writer.encode(batch)

    def read(self, wanted: Range = EVERYTHING) -> Generator[NumberedRows | Missing, None, None]:
        """As `Log.read`. `StorageError` at the end if the newest rows are damaged, so that their number is unknown."""
        return ReplicatedReading(self._store, self.name, self.codec, wanted, self.writer.acknowledged).run()

    def statistics(self) -> LogStatistics:
        """As `Log.statistics`."""
        return statistics(self._store, self.name)

    def extents(self, wanted: Range = EVERYTHING) -> list[Extent]:
        """As `Log.extents`."""
        return extents(self._store, self.name, wanted)

    def stored(self, wanted: Range = EVERYTHING, limit: int | None = None) -> StoredRows:
        """As `Log.stored`. The files are in the object store, and what is read of them comes from there each time."""
        return stored(self._store, self.name, wanted, limit)

    def trim(self, before_seq: int) -> Ticket:
        """As `Log.trim`."""
        commit = Commit()
        first = min(max(before_seq, 0), self.next_seq)

        async def work() -> None:
            try:
                await self._trim(before_seq)
            except FastFlightError as error:
                make = functools.partial(StorageError, error.what, where=error.where, hint=error.hint)
                commit.finish(make)
            else:
                commit.finish()

        self._store.submit(work())
        return Ticket(first, first - 1, commit)

    async def _trim(self, before_seq: int) -> None:
        stream = self._store.stream
        while True:
            state, tail = await stream.end(self.name)
            if state is None:
                raise UnknownName("no such recording", where=self.name)
            first = min(max(before_seq, state.log.first), tail.next)
            if first == state.log.first or await stream.put_state(state.log._replace(first=first), state.revision):
                break
        # The last message stays: it has the log's next number and totals.
        subject, number = subject_of(self.name), log_number(self.name)
        until = await stream.find(subject, number, tail.seq, lambda record: record.next > first)
        if (until := min(until, tail.seq)) > 1:
            await stream.purge(until, subject)
