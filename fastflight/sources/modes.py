"""The two modes of requests. Sources are written once, with `await`, and take one of these.

`OnLoop` is for mode `async`: what is awaited suspends. `InThread` is for mode `sync`: it blocks the calling thread.
`TwoModeSource` and its subclasses have the functions of a source for both modes. `begin` turns a source's generator of
batches into the reading that the edges use.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar, cast

import pyarrow as pa

from fastflight.concurrency import Shard, across
from fastflight.concurrency.blocking import Blocking, NonBlocking, finish
from fastflight.concurrency.gather import AsyncGather, Gather
from fastflight.concurrency.offload import off_loop
from fastflight.device import AsyncSession, Device, Inventory
from fastflight.gap import Gap
from fastflight.service.requests import Request
from fastflight.service.source import Acknowledge, Batches, DataSource, Incoming, Reading, Summary
from fastflight.sources.release import areleased, released
from fastflight.sources.spool import Spool
from fastflight.transport.chunk_buffer import Chunk, TapReader

R = TypeVar("R", bound=Request)
T = TypeVar("T")

# Bytes that a thread stores between two checks for cancellation: six seconds of a line at 115200 baud.
CHECK_BYTES = 64 * 1024


class Rows(Protocol):
    """The object that makes the rows of a reading."""

    @property
    def schema(self) -> pa.Schema | None:
        """None until it is known; an answer that ends without one has no columns."""

    def summary(self) -> Summary: ...


async def begin(rows: Rows, batches: AsyncGenerator[Batches, None] | NonBlocking[Batches]) -> Reading:
    """Advance `batches` until the schema of `rows` is known, so that errors before the first row are raised here.

    What came until then is the first of the reading. Closes `batches` if that fails.
    """
    first: Batches = []
    try:
        async for more in batches:
            first += more
            if rows.schema is not None:
                break
        schema = pa.schema([]) if rows.schema is None else rows.schema  # not `or`: one without columns is falsy
        return Reading(schema, batches, rows.summary, first=first)
    except BaseException:
        await batches.aclose()
        raise


def in_thread(reading: Reading) -> Reading:
    """Have the batches of a reading, which never suspend, be read in threads."""
    if reading.rest is not None:
        reading.rest = Blocking(cast("AsyncIterator[Batches]", reading.rest))
    return reading


class OnLoop:
    """Serves requests on an event loop, where a task is cancelled when nobody wants its answer."""

    # A task can be cancelled while it waits, so an empty list is only needed as a sign of life.
    idle_seconds = 5.0

    def lease(self, device: Device, holder: str, *, interrupt: bool) -> AbstractAsyncContextManager[AsyncSession]:
        """Return `Device.alease`."""
        return device.alease(holder, interrupt=interrupt)

    async def run(self, function: Callable[..., T], *args: Any, discard: Callable[[T], object] | None = None) -> T:
        """Return the result of a function that may take long. It runs in a thread."""
        return await off_loop(function, *args, discard=discard)

    async def feed(self, spool: Spool, data: bytes) -> None:
        """Add `data` to `spool`."""
        await spool.afeed(data)

    async def take(self, reader: TapReader, seconds: float) -> Sequence[Chunk | Gap]:
        """Return the next traffic; wait for it for at most `seconds`."""
        return await reader.atake(seconds)

    def released(
        self, pieces: AsyncGenerator[bytes, None], shard: Shard | None, patience: float
    ) -> AsyncGenerator[bytes, None]:
        """Yield `pieces`; a reader that is slower than `patience` seconds does not keep the board."""
        return areleased(pieces, patience)

    async def read(self, source: DataSource[R], request: R) -> Reading:
        """Open an answer of another source."""
        _, read = source.function("read", "async")
        return cast(Reading, await read(request))

    async def each(self, items: Generator[T, None, None]) -> AsyncGenerator[T, None]:
        """Yield items whose making may take long. Each step runs in a thread. Closes `items` at the end."""
        fetching = False
        try:
            while True:
                fetching = True
                item = await off_loop(next, items, None, discard=lambda _: items.close())
                fetching = False
                if item is None:
                    return
                yield item
        finally:
            if not fetching:  # a step that is still running closes them in its thread
                items.close()

    def across(
        self, shard_of: Callable[[], Shard], begin: Callable[[], AsyncGenerator[T, None]], **limits: Any
    ) -> AsyncGenerator[T, None]:
        """Iterate what `begin` returns on another shard. `limits` are those of `concurrency.across`."""
        return across(shard_of(), begin, **limits)

    def gather(self, jobs: Sequence[Callable[[], AsyncGenerator[T, None]]], **limits: Any) -> AsyncGather[T]:
        """Iterate the items of all `jobs`. `limits` are those of `Gather`."""
        return AsyncGather(jobs, **limits)

    def while_wanted(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield `pieces`, until the upload is ended."""
        return pieces


class InThread:
    """Serves requests in the calling thread, which nothing can interrupt. `check` raises what has ended an upload."""

    # The caller checks for cancellation between two lists of batches. With `HEARTBEAT_SECONDS` it must be below 5.
    idle_seconds = 0.4

    def __init__(self, check: Callable[[], object] = bool) -> None:
        self._check = check

    @contextlib.asynccontextmanager
    async def lease(self, device: Device, holder: str, *, interrupt: bool) -> AsyncIterator[AsyncSession]:
        """As `Device.lease`."""
        with device.lease(holder, interrupt=interrupt) as session:
            yield session.awaitable()

    async def run(self, function: Callable[..., T], *args: Any, discard: Callable[[T], object] | None = None) -> T:
        """Return the result of a function."""
        return function(*args)

    async def feed(self, spool: Spool, data: bytes) -> None:
        """As `OnLoop.feed`."""
        spool.feed(data)

    async def take(self, reader: TapReader, seconds: float) -> Sequence[Chunk | Gap]:
        """As `OnLoop.take`."""
        return reader.take(seconds)

    def released(
        self, pieces: AsyncGenerator[bytes, None], shard: Shard | None, patience: float
    ) -> AsyncGenerator[bytes, None] | NonBlocking[bytes]:
        """As `OnLoop.released`. `shard` watches over the time; without one, the board is kept."""
        return pieces if shard is None else NonBlocking(released(Blocking(pieces), shard, patience))

    async def read(self, source: DataSource[R], request: R) -> Reading:
        """As `OnLoop.read`."""
        _, read = source.function("read", "sync")
        reading = cast(Reading, read(request))
        if reading.rest is not None:
            reading.rest = NonBlocking(cast("Iterator[Batches]", reading.rest))
        return reading

    def each(self, items: Generator[T, None, None]) -> NonBlocking[T]:
        """As `OnLoop.each`."""
        return NonBlocking(items)

    def across(
        self, shard_of: Callable[[], Shard], begin: Callable[[], AsyncGenerator[T, None]], **limits: Any
    ) -> AsyncGenerator[T, None]:
        """Return what `begin` returns."""
        return begin()

    def gather(self, jobs: Sequence[Callable[[], AsyncGenerator[T, None]]], **limits: Any) -> NonBlocking[T]:
        """As `OnLoop.gather`, in threads. Empty lists come while there is nothing else."""
        in_threads = [partial(_blocking, job) for job in jobs]
        return NonBlocking(Gather(in_threads, idle=list, name="gather", **limits))

    async def while_wanted(self, pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """Yield the same bytes, and check before every `CHECK_BYTES` of them whether the upload was ended."""
        async for piece in pieces:
            for start in range(0, max(len(piece), 1), CHECK_BYTES):
                self._check()
                yield piece[start : start + CHECK_BYTES]


def _blocking(job: Callable[[], AsyncGenerator[T, None]]) -> Blocking[T]:
    return Blocking(job())


Mode: TypeAlias = OnLoop | InThread


class TwoModeSource(DataSource[R]):
    """The base of sources that are written once: `_open` returns an answer."""

    async def _open(self, request: R, mode: Mode) -> Reading:
        raise NotImplementedError

    def read(self, request: R) -> Reading:
        return in_thread(finish(self._open(request, InThread())))

    async def aread(self, request: R) -> Reading:
        return await self._open(request, OnLoop())


class BoardSource(TwoModeSource[R]):
    """The base of sources that use one board for each request."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory

    def _lease(self, request: Any, mode: Mode) -> AbstractAsyncContextManager[AsyncSession]:
        """Own the device of a request for an `async with` block. Other callers are told which request has it."""
        path = getattr(request, "path", None)
        holder = f"a {request.type} request ({request.mode})" + (f" for {path}" if path else "")
        return mode.lease(self._inventory.device(request.device), holder, interrupt=request.interrupt)


class BoardStore(BoardSource[R]):
    """The base of such sources that also take rows, which `_store` does."""

    async def _store(
        self,
        request: R,
        schema: pa.Schema,
        batches: AsyncIterator[pa.RecordBatch],
        acknowledge: Acknowledge,
        mode: Mode,
    ) -> Summary:
        raise NotImplementedError

    def write(self, request: R, schema: pa.Schema, batches: Incoming, acknowledge: Acknowledge) -> Summary:
        return finish(self._store(request, schema, NonBlocking(batches), acknowledge, InThread(batches.check)))

    async def awrite(
        self, request: R, schema: pa.Schema, batches: AsyncIterator[pa.RecordBatch], acknowledge: Acknowledge
    ) -> Summary:
        return await self._store(request, schema, batches, acknowledge, OnLoop())
