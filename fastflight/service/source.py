"""Sources: a source serves one request type.

A sync function runs in the calling thread, an async one on an event loop. The request's `mode` and the functions that
the source has decide which one is called (`DataSource.function`).

A reader returns when the schema is known, and raises errors that come before the first row. The `Reading` that it
returns owns the device or file that it reads from: closing it, at any point, releases that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar, cast

import pyarrow as pa

from fastflight.errors import RequestError
from fastflight.service.choices import Mode
from fastflight.service.requests import Request

R = TypeVar("R", bound=Request)

Summary = Mapping[str, Any]
# What a source reports at a place among the rows. It goes to the client as JSON.
Note = Mapping[str, Any]
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
    note: Note


Batch: TypeAlias = pa.RecordBatch | Noted
# The batches that a source has ready at the same time. An empty list means that it is alive and has nothing yet.
Batches: TypeAlias = list[Batch]


def held_bytes(batch: pa.RecordBatch, values: int | None = None) -> int:
    """Return how many bytes of memory a batch takes while it waits.

    A line of a live session takes 4 KB, for 40 bytes of values. `values` is the number of bytes of the batch's values,
    if the caller knows them better than `nbytes`.
    """
    return int((batch.nbytes if values is None else values) + BATCH_BYTES + COLUMN_BYTES * batch.num_columns)


def all_held_bytes(batches: Batches) -> int:
    """Return how many bytes of memory some batches take while they wait."""
    return sum(held_bytes(each.batch if isinstance(each, Noted) else each) for each in batches)


@dataclass(slots=True)
class Reading:
    """The answer of a source: `first`, which came with the schema, then `rest`. If that is None, `first` is all of it.

    A source that runs in the calling thread gives an iterator as `rest`; iterate the reading with `for`, and `close`
    it. One that runs on an event loop gives an asynchronous iterator; use `async for`, and `aclose`.

    Call `summary` after the rest has ended. A live answer has a `drain` function, for any thread: it makes the rest end
    soon, after the rows that have come so far.
    """

    schema: pa.Schema
    rest: Iterator[Batches] | AsyncIterator[Batches] | None = None
    summary: Callable[[], Summary] = no_summary
    drain: Callable[[], None] | None = None
    first: Batches = field(default_factory=list)

    def __iter__(self) -> Iterator[Batches]:
        if self.first:
            yield self.first
        if self.rest is not None:
            yield from cast("Iterator[Batches]", self.rest)

    async def __aiter__(self) -> AsyncIterator[Batches]:
        if self.first:
            yield self.first
        if self.rest is not None:
            async for batches in cast("AsyncIterator[Batches]", self.rest):
                yield batches

    def close(self) -> None:
        """Release what an iterator reads from."""
        if (close := getattr(self.rest, "close", None)) is not None:
            close()

    async def aclose(self) -> None:
        """Release what an asynchronous iterator reads from."""
        if (aclose := getattr(self.rest, "aclose", None)) is not None:
            await aclose()


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
    aread: Callable[[R], Awaitable[Reading]] | None = None
    write: Callable[[R, pa.Schema, Incoming, Acknowledge], Summary] | None = None
    awrite: Callable[[R, pa.Schema, AsyncIterator[pa.RecordBatch], Acknowledge], Awaitable[Summary]] | None = None
    exchange: Callable[[R, pa.Schema, Incoming], Reading] | None = None
    aexchange: Callable[[R, pa.Schema, AsyncIncoming], Awaitable[Reading]] | None = None

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
