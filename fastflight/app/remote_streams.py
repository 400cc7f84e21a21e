"""Streams of another server: a write to it and an exchange with it on an event loop, and lots that own a stream.

A write and an exchange take what is to be sent from an asynchronous iterator, and end in the middle if their task is
cancelled. The server is then told that the write or the exchange is not complete.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator
from typing import TypeVar

import pyarrow as pa

from fastflight.client.connection import ServerConnection
from fastflight.client.interaction import Interaction, leave
from fastflight.client.rows import UploadRows
from fastflight.client.stream import RowStream
from fastflight.client.threads import run_cancellable
from fastflight.concurrency import Channel, iterate_in_thread, off_loop
from fastflight.concurrency.offload import unbroken
from fastflight.errors import FastFlightError, ProtocolError, Stopped
from fastflight.runtime.outgoing import Piece
from fastflight.service.requests import Request
from fastflight.service.source import Acknowledge, Lot, PartialUpload, Progress, Summary, held_bytes
from fastflight.tables.vetting import vet_batch

T = TypeVar("T")

# Rows of an upload that wait for the server, which buffers as much again.
WAITING_BYTES = 1024 * 1024


async def upload(
    connection: ServerConnection,
    request: Request,
    schema: pa.Schema,
    batches: AsyncIterator[pa.RecordBatch],
    acknowledge: Acknowledge,
) -> Summary:
    """Write `batches` at the server, and return its last acknowledgement.

    Raises the error of the server or of `batches`, whichever is first. The server then leaves the old content as it is.
    """
    waiting = Channel[pa.RecordBatch](WAITING_BYTES)

    def stored(kept: PartialUpload) -> Iterator[pa.RecordBatch]:
        acknowledge(kept)
        return iter(waiting)

    resumes = getattr(request, "resume", False)
    # A client that waits for an acknowledgement sends nothing that would end a write which the server has refused.
    rows = UploadRows(schema, iter(waiting), after=stored if resumes else None, stop=waiting.finish)

    def report(rows: int, size: int, _: int | None) -> None:
        if not work.last.get("done"):  # the last acknowledgement is the result
            acknowledge(Progress(rows, size))

    work = connection.upload(request, rows, report)
    writing = asyncio.ensure_future(run_cancellable(work.run, work.give_up))
    writing.add_done_callback(lambda _: waiting.close())
    # Fetch the exception: asyncio would log it as never retrieved if the client has left.
    writing.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    feeding = asyncio.ensure_future(_feed(batches, waiting))
    try:
        # The client may send nothing more until it hears of what it has sent.
        await asyncio.wait([feeding, writing], return_when=asyncio.FIRST_COMPLETED)
        if feeding.done():
            feeding.result()
        await asyncio.shield(writing)
        return {key: value for key, value in work.last.items() if key != "done"}
    except BaseException as error:
        waiting.fail(error if isinstance(error, FastFlightError) else Stopped("the upload broke off"))
        if not writing.done():
            writing.cancel()  # the upload then cancels its call and waits for its end
            await asyncio.wait([writing])
        raise
    finally:
        feeding.cancel()
        await asyncio.wait([feeding])


async def _feed(batches: AsyncIterator[pa.RecordBatch], waiting: Channel[pa.RecordBatch]) -> None:
    async for batch in batches:
        try:
            await waiting.aput(batch, held_bytes(batch))
        except Stopped:  # the upload has ended; awaiting it raises the reason
            return
    waiting.finish()


class Exchange:
    """An exchange with another server. Iterate `read_ahead`, and call `aclose` after that."""

    def __init__(self, interaction: Interaction, contents: AsyncIterator[bytes]) -> None:
        self._interaction = interaction
        self._sending = asyncio.ensure_future(_send(contents, interaction))

    @classmethod
    async def open(cls, connection: ServerConnection, request: Request, contents: AsyncIterator[bytes]) -> Exchange:
        """Open it. It sends `contents`, and ends when they end."""
        return cls(await off_loop(connection.interaction, request, discard=leave), contents)

    @property
    def rows(self) -> RowStream:
        """What the server sends."""
        return self._interaction.rows

    async def read_ahead(
        self, read: Callable[[], Generator[T, None, None]], max_bytes: int, size_of: Callable[[T], int]
    ) -> AsyncGenerator[T, None]:
        """Yield what `read` makes of `rows`. An error of `contents` ends the exchange, and is raised here."""
        pieces = iterate_in_thread(read, max_bytes=max_bytes, size_of=size_of, cancel=self._interaction.cancel)
        async with contextlib.aclosing(pieces):
            try:
                async for piece in pieces:
                    yield piece
            except Stopped:
                if self._sending.done() and not self._sending.cancelled():
                    self._sending.result()
                raise

    async def aclose(self) -> None:
        """End it at once, if it has not ended."""
        await unbroken(self._end())

    async def _end(self) -> None:
        await off_loop(self._interaction.cancel)  # also ends a send that waits for the device
        self._sending.cancel()
        await asyncio.wait([self._sending])
        if not self._sending.cancelled():
            self._sending.exception()
        await off_loop(self._interaction.settle)


async def _send(contents: AsyncIterator[bytes], interaction: Interaction) -> None:
    try:
        async for data in contents:
            try:
                await off_loop(interaction.send, data)
            except FastFlightError:  # the exchange has ended; reading its rows raises the reason
                return
        interaction.done()
    except Exception:
        interaction.cancel()
        raise


def vetted(stream: RowStream) -> Generator[Piece, None, None]:
    """Yield what `stream.pieces` does. `ProtocolError` for a batch whose values must not be used.

    A server that passes rows on has those of others in its memory, which a wrong offset in a batch would reveal.
    """
    for batch, note in stream.pieces():
        try:
            vet_batch(batch)
        except pa.ArrowException as error:
            raise ProtocolError(f"another server sends a batch that is corrupt: {error}", where="rows") from None
        yield batch, note


class OwnedLots(Iterator[Lot]):
    """Lots whose `close` calls `end`, even if none was taken: a generator that was not started does nothing."""

    def __init__(self, lots: Generator[Lot, None, None], end: Callable[[], None]) -> None:
        self._lots = lots
        self._end = end

    def __next__(self) -> Lot:
        return next(self._lots)

    def close(self) -> None:
        try:
            self._lots.close()
        finally:
            self._end()


class AsyncOwnedLots(AsyncIterator[Lot]):
    """As `OwnedLots`, on an event loop."""

    def __init__(self, lots: AsyncGenerator[Lot, None], end: Callable[[], Awaitable[None]]) -> None:
        self._lots = lots
        self._end = end

    async def __anext__(self) -> Lot:
        return await anext(self._lots)

    async def aclose(self) -> None:
        try:
            await self._lots.aclose()
        finally:
            await self._end()
