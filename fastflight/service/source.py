"""Sources: a source serves one request type.

A sync function runs in the calling thread, an async one on an event loop. The request's `mode` and the functions that
the source has decide which one is called (`DataSource.function`).

A reader returns when the schema is known, and raises errors that come before the first row. It returns an iterator of
lots, which owns the device or file that it reads from: closing the iterator, at any point, releases that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

import pyarrow as pa

from fastflight.errors import RequestError
from fastflight.service.choices import Mode
from fastflight.service.requests import Request

R = TypeVar("R", bound=Request)

Summary = Mapping[str, Any]
# Arrow and Python use 600 to 950 bytes for each column of a batch (measured with pyarrow 26), however few its rows.
COLUMN_BYTES = 768
# The batch itself, and its place in a queue.
BATCH_BYTES = 256
# Takes the name of a device or recording. Returns whether to list it.
Takes = Callable[[str], bool]


def no_summary() -> Summary:
    """Return an empty summary, for sources that have nothing to add to the server's counts."""
    return {}


@dataclass(frozen=True, slots=True)
class Noted:
    """A batch with a note: information about this place among the rows, before the batch's own rows (if any)."""

    batch: pa.RecordBatch
    note: Mapping[str, Any]


def held_bytes(batch: pa.RecordBatch, values: int | None = None) -> int:
    """Return how many bytes of memory a batch takes while it waits.

    A line of a live session takes 4 KB, for 40 bytes of values. `values` is the number of bytes of the batch's values,
    if the caller knows them better than `nbytes`.
    """
    return int((batch.nbytes if values is None else values) + BATCH_BYTES + COLUMN_BYTES * batch.num_columns)


Item: TypeAlias = pa.RecordBatch | Noted
# The items that a source has ready at the same time. An empty lot means that the source is alive and has nothing yet.
Lot: TypeAlias = list[Item]
Lots = TypeVar("Lots")


def lot_bytes(lot: Lot) -> int:
    """Return how many bytes of memory a lot takes while it waits."""
    return sum(held_bytes(item.batch if isinstance(item, Noted) else item) for item in lot)


class NoLots(Iterator[Lot], AsyncIterator[Lot]):
    """An empty iterator of lots, for threads and coroutines."""

    def __next__(self) -> Lot:
        raise StopIteration

    async def __anext__(self) -> Lot:
        raise StopAsyncIteration


NO_LOTS: Any = NoLots()


@dataclass(frozen=True, slots=True)
class ReadingOf(Generic[Lots]):
    """The answer of a source: `first`, which came with the schema, then `lots`. Without `lots`, `first` is all of it.

    Closing `lots` releases the source's device or file. Call `summary` after the lots have ended. A live answer has a
    `drain` function, for any thread: it makes the lots end soon, after the rows that have come so far.
    """

    schema: pa.Schema
    lots: Lots = NO_LOTS
    summary: Callable[[], Summary] = no_summary
    drain: Callable[[], None] | None = None
    first: Lot = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether `first` is the whole answer."""
        return self.lots is NO_LOTS


class Reading(ReadingOf[Iterator[Lot]]):
    """An answer that is read in the calling thread."""

    __slots__ = ()

    def all_lots(self) -> Iterator[Lot]:
        """Return an iterator over `first`, unless it is empty, and then `lots`."""
        return chain((self.first,) if self.first else (), self.lots)


class AsyncReading(ReadingOf[AsyncIterator[Lot]]):
    """An answer that is read on an event loop."""

    __slots__ = ()

    async def all_lots(self) -> AsyncIterator[Lot]:
        """Yield `first`, unless it is empty, and then `lots`."""
        if self.first:
            yield self.first
        async for lot in self.lots:
            yield lot


@dataclass(frozen=True, slots=True)
class Progress:
    """The totals of a write so far: rows accepted, bytes stored on the device."""

    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PartialUpload:
    """The data that an interrupted write has left, and that this write may continue: its size and its digest.

    If nothing was left, `bytes` is 0 and the other fields are empty.
    """

    bytes: int = 0
    algorithm: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Refused:
    """Tells the client that the write has failed, so that it ends its side. The call then raises the error."""


# Called with `Progress` after each batch, once its rows are stored. Called with a `PartialUpload` before the first
# batch, if the request asks to resume. Never blocks, and may be called in any thread.
Acknowledge = Callable[[Progress | PartialUpload | Refused], None]


class Incoming(Protocol):
    """A client's batches as they come. `close`, from any thread, ends the iteration.

    Nothing can interrupt a sync writer. So one that works on a batch for long must call `check` now and then: it raises
    the error that has ended the upload, if it was ended.
    """

    def __iter__(self) -> Iterator[pa.RecordBatch]: ...

    def __next__(self) -> pa.RecordBatch: ...

    def check(self) -> None: ...

    def close(self) -> None: ...


class AsyncIncoming(Protocol):
    """As `Incoming`, on an event loop, where tasks are cancelled."""

    def __aiter__(self) -> AsyncIterator[pa.RecordBatch]: ...

    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is known of an answer without reading it. `rows` and `bytes` are -1 if they are not known.

    `note` has information for clients that list flights, such as that the device is busy.
    """

    schema: pa.Schema | None
    rows: int = -1
    bytes: int = -1
    note: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Part(Generic[R]):
    """A request for a part of another request's rows, and the locations that serve it best; none means this server."""

    request: R
    locations: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Parts(Generic[R]):
    """Requests that may be read in parallel and together have the rows of one request.

    `ordered`: read one after another, they have the rows in the order of that request.
    """

    parts: Sequence[Part[R]]
    ordered: bool = True


class DataSource(Generic[R]):
    """The base of all sources. A subclass sets `request`, and has a method for each operation that it supports.

    `read`, `write` and `exchange` run in the calling thread, their `a` forms on an event loop; those that a source does
    not have are None. A writer writes all batches and returns the last acknowledgement, which has at least `rows` and
    `bytes`. An exchange answers while it reads the batches, and closes them when its answer ends or is closed.
    """

    request: type[R]

    read: Callable[[R], Reading] | None = None
    aread: Callable[[R], Awaitable[AsyncReading]] | None = None
    write: Callable[[R, pa.Schema, Incoming, Acknowledge], Summary] | None = None
    awrite: Callable[[R, pa.Schema, AsyncIterator[pa.RecordBatch], Acknowledge], Awaitable[Summary]] | None = None
    exchange: Callable[[R, pa.Schema, Incoming], Reading] | None = None
    aexchange: Callable[[R, pa.Schema, AsyncIncoming], Awaitable[AsyncReading]] | None = None

    def describe(self, request: R) -> Estimate:
        """Return what is known of the answer without reading it, for get_flight_info and get_schema."""
        return Estimate(None)

    def requests(self, takes: Takes) -> Iterator[tuple[R, Estimate]]:
        """Yield the flights for list_flights. Only the devices that `takes` accepts are asked for theirs."""
        return iter(())

    def parts(self, request: R, known: Estimate) -> Parts[R]:
        """Divide `request` into at least one part, if reading in parallel helps. `known` is its description."""
        return Parts([Part(request)])

    def function(self, doing: Literal["read", "write", "exchange"], mode: Mode) -> tuple[Mode, Any]:
        """Return the function for `doing`, and its mode: `mode`, or the only one that this source has.

        Raise `RequestError` if the source does not support the operation.
        """
        sync, asynchronous = getattr(self, doing), getattr(self, f"a{doing}")
        if sync is not None and (mode == "sync" or asynchronous is None):
            return "sync", sync
        if asynchronous is None:
            done = {"read": "read", "write": "written", "exchange": "exchanged"}[doing]
            raise RequestError(f"{self.request.type} cannot be {done}", where="type")
        return "async", asynchronous
