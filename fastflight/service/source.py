"""What a source is: the functions behind one request type.

A sync reader runs in the thread that asks; an async one on an event loop. Which of the two a request takes is decided
by its `mode` and by what was registered in the catalog, never by trying one and catching the failure.

Readers return only when the schema is known and errors before the first row have been raised. The iterator of lots owns
whatever it holds (a device, a file): closing it, at any point, gives that back.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import pyarrow as pa

from fastflight.service.requests import Request

R = TypeVar("R", bound=Request)
R_contra = TypeVar("R_contra", bound=Request, contravariant=True)

Summary = Mapping[str, Any]
# Arrow and Python keep 600 to 950 bytes for each column of a batch (measured with pyarrow 26), however few its rows.
COLUMN_BYTES = 768
# The batch itself, and its place in a queue.
BATCH_BYTES = 256
# Whether a device, or a recording, of a name is one to list.
Takes = Callable[[str], bool]


def no_summary() -> Summary:
    """For sources with nothing to add to the counts that the server keeps."""
    return {}


@dataclass(frozen=True, slots=True)
class Noted:
    """A batch, and what is to be known at this place among the rows: before its rows, which may be none."""

    batch: pa.RecordBatch
    note: Mapping[str, Any]


def held_bytes(batch: pa.RecordBatch, values: int | None = None) -> int:
    """The memory that a batch takes while it waits: 4 KB for a line of a live session, which has 40 bytes of values.

    `values`: the bytes of its values, where the caller knows them better than `nbytes`.
    """
    return int((batch.nbytes if values is None else values) + BATCH_BYTES + COLUMN_BYTES * batch.num_columns)


Item: TypeAlias = pa.RecordBatch | Noted
# What a source has at once. An empty lot says that the source is alive and has nothing yet.
Lot: TypeAlias = list[Item]
Lots = TypeVar("Lots")


def lot_bytes(lot: Lot) -> int:
    """The memory that a lot takes while it waits."""
    return sum(held_bytes(item.batch if isinstance(item, Noted) else item) for item in lot)


class NoLots(Iterator[Lot], AsyncIterator[Lot]):
    """No lots, for threads and coroutines."""

    def __next__(self) -> Lot:
        raise StopIteration

    async def __anext__(self) -> Lot:
        raise StopAsyncIteration


NO_LOTS: Any = NoLots()


@dataclass(frozen=True, slots=True)
class ReadingOf(Generic[Lots]):
    """What a source answers: `first`, which came with the schema, then `lots`. Without `lots` it is all in `first`.

    Closing `lots` gives back what the source holds. `summary` may be called once they have ended. A live answer has a
    `drain`, callable from any thread: its lots end soon then, with what came so far.
    """

    schema: pa.Schema
    lots: Lots = NO_LOTS
    summary: Callable[[], Summary] = no_summary
    drain: Callable[[], None] | None = None
    first: Lot = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether `first` is all of it."""
        return self.lots is NO_LOTS


class Reading(ReadingOf[Iterator[Lot]]):
    """Read in the thread that asks."""

    __slots__ = ()

    def all_lots(self) -> Iterator[Lot]:
        """`first`, unless it is empty, and then `lots`."""
        return chain((self.first,) if self.first else (), self.lots)


class AsyncReading(ReadingOf[AsyncIterator[Lot]]):
    """Read on an event loop."""

    __slots__ = ()

    async def all_lots(self) -> AsyncIterator[Lot]:
        """`first`, unless it is empty, and then `lots`."""
        if self.first:
            yield self.first
        async for lot in self.lots:
            yield lot


@dataclass(frozen=True, slots=True)
class Progress:
    """What a write has made durable so far, in all: rows taken, bytes on the device."""

    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Kept:
    """What an earlier write left that this one may go on from: its first `bytes`, and their digest.

    `bytes` is 0, and the others empty, where nothing was left.
    """

    bytes: int = 0
    algorithm: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Refused:
    """A write has failed, and why is told at its end: who sends need not wait for more, but may end it."""


# Called with `Progress` after each batch, once its rows are safe where they were sent; before the first one, with
# what was `Kept` where the request asks for that. Never blocks and may be called on any thread.
Acknowledge = Callable[[Progress | Kept | Refused], None]


class Reader(Protocol[R_contra]):
    def __call__(self, request: R_contra) -> Reading: ...


class AsyncReader(Protocol[R_contra]):
    def __call__(self, request: R_contra) -> Awaitable[AsyncReading]: ...


class Sent(Protocol):
    """A client's batches on their way to a sync writer, whom nothing can interrupt.

    One that takes its time over a batch calls `check` now and then: it raises what ended them, once nobody wants more.
    """

    def __iter__(self) -> Iterator[pa.RecordBatch]: ...

    def __next__(self) -> pa.RecordBatch: ...

    def check(self) -> None: ...


class Writer(Protocol[R_contra]):
    """Takes all of `batches` and returns the last acknowledgement: at least `rows`, `bytes`."""

    def __call__(
        self,
        request: R_contra,
        schema: pa.Schema,
        batches: Sent,
        acknowledge: Acknowledge,
    ) -> Summary: ...


class AsyncWriter(Protocol[R_contra]):
    """The same on an event loop."""

    def __call__(
        self,
        request: R_contra,
        schema: pa.Schema,
        batches: AsyncIterator[pa.RecordBatch],
        acknowledge: Acknowledge,
    ) -> Awaitable[Summary]: ...


class Incoming(Protocol):
    """A client's batches, as they come. Closed, from any thread, it ends for whoever iterates."""

    def __iter__(self) -> Iterator[pa.RecordBatch]: ...

    def close(self) -> None: ...


class AsyncIncoming(Protocol):
    """The same on an event loop."""

    def __aiter__(self) -> AsyncIterator[pa.RecordBatch]: ...

    async def aclose(self) -> None: ...


class Exchanger(Protocol[R_contra]):
    """Answers while it takes `batches`; closes them when the answer ends or is closed."""

    def __call__(self, request: R_contra, schema: pa.Schema, batches: Incoming) -> Reading: ...


class AsyncExchanger(Protocol[R_contra]):
    """The same on an event loop."""

    def __call__(self, request: R_contra, schema: pa.Schema, batches: AsyncIncoming) -> Awaitable[AsyncReading]: ...


@dataclass(frozen=True, slots=True)
class Estimate:
    """What can be known of an answer without reading it: -1 where it cannot be known.

    It may be given again for `keep_seconds`: 0 for what may change at any moment, `math.inf` for what cannot. `note`
    says what a client that lists flights has to know: that the device is busy, say.
    """

    schema: pa.Schema | None
    rows: int = -1
    bytes: int = -1
    keep_seconds: float = 0.0
    note: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Part(Generic[R]):
    """A request that answers with a part of another's rows, and where it is served best: nowhere named is here."""

    request: R
    locations: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Parts(Generic[R]):
    """Requests that may be read side by side, and together have the rows of one.

    `ordered`: one after another they have them in its order.
    """

    parts: Sequence[Part[R]]
    ordered: bool = True


@dataclass(frozen=True, slots=True)
class Source(Generic[R]):
    """A request type and the functions that serve it; a function that is None is not supported.

    `describe` answers get_flight_info and get_schema. `requests` lists what list_flights shows, of the devices that it
    is to take: no other is asked anything. `parts`, given a request and what is known of it, divides it where reading
    in parallel helps: there is at least one.
    """

    request: type[R]
    read: Reader[R] | None = None
    aread: AsyncReader[R] | None = None
    write: Writer[R] | None = None
    awrite: AsyncWriter[R] | None = None
    exchange: Exchanger[R] | None = None
    aexchange: AsyncExchanger[R] | None = None
    describe: Callable[[R], Estimate] | None = None
    requests: Callable[[Takes], Iterator[tuple[R, Estimate]]] | None = None
    parts: Callable[[R, Estimate], Parts[R]] | None = None
