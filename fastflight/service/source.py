"""What a source is: the functions behind one request type.

A sync reader runs in the thread that asks; an async one on an event loop. Which of the two a request takes is decided
by its `mode` and by what was registered in the catalog, never by trying one and catching the failure.

Readers return only when the schema is known and errors before the first row have been raised. The batches' iterator
owns whatever it holds (a device, a file): closing it, at any point, gives that back.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from fastflight.service.requests import Request

R = TypeVar("R", bound=Request)
R_contra = TypeVar("R_contra", bound=Request, contravariant=True)

Summary = Mapping[str, Any]
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


@dataclass(frozen=True, slots=True)
class Reading:
    """An answer that is read in the asking thread. `summary` may be called once `batches` has ended.

    A live answer has a `drain`, callable from any thread: its batches end soon then, with what came so far. One whose
    batches are `ready` gives them without waiting for anything: several may be taken before the first one is sent.
    """

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch | Noted]
    summary: Callable[[], Summary] = no_summary
    drain: Callable[[], None] | None = None
    ready: bool = False


@dataclass(frozen=True, slots=True)
class AsyncReading:
    """As `Reading`, read on an event loop."""

    schema: pa.Schema
    batches: AsyncIterator[pa.RecordBatch | Noted]
    summary: Callable[[], Summary] = no_summary
    drain: Callable[[], None] | None = None


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
