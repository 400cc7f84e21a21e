"""Passes rows between the gateway's event loop and a source that runs elsewhere: in a thread, or on a shard.

`run_writer` writes rows of the loop with a writer that `writer_on_shard` or `writer_in_thread` makes. They hand over
through a `Channel`, which is bounded by bytes. If the rows fail or their client leaves, the writer gets that error
before the rows that still wait, and has cleaned up when `run_writer` returns. The other way, from a blocking source to
the loop, goes `concurrency.iterate_in_thread`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import threading
from collections.abc import AsyncIterator, Awaitable, Callable

import pyarrow as pa

from fastflight.concurrency import Channel, Shard
from fastflight.errors import FastFlightError, Stopped
from fastflight.runtime.stream import Stream
from fastflight.service.source import Incoming, Summary, held_bytes

# The most bytes of rows that wait for a source that writes. A board at 115200 baud takes a minute for 1 MiB, so more
# would only wait.
WAITING_BYTES = 1024 * 1024
# How long a writer may clean up (remove its temporary file) after the upload broke off.
ABORT_SECONDS = 5.0

Rows = AsyncIterator[pa.RecordBatch]
RowChannel = Channel[pa.RecordBatch]
WriterFuture = concurrent.futures.Future[Summary]


def writer_on_shard(
    shard: Shard, write: Callable[[Rows], Awaitable[Summary]]
) -> tuple[RowChannel, Callable[[], WriterFuture]]:
    """Return a channel for rows, and a function that starts a `write` of them on `shard`."""
    channel = RowChannel(WAITING_BYTES)

    async def consume() -> Summary:
        try:
            return await write(_rows_of(channel))
        finally:
            await channel.aclose()

    return channel, lambda: shard.submit(consume())


def writer_in_thread(write: Callable[[Incoming], Summary]) -> tuple[RowChannel, Callable[[], WriterFuture]]:
    """As `writer_on_shard`, for a `write` that blocks: it gets a thread."""
    channel = RowChannel(WAITING_BYTES)
    ended: WriterFuture = concurrent.futures.Future()
    # A thread cannot be cancelled, so its future must not be.
    ended.set_running_or_notify_cancel()

    def consume() -> None:
        try:
            summary = write(channel)
        except BaseException as error:
            ended.set_exception(error)
        else:
            ended.set_result(summary)
        finally:
            channel.close()

    def start() -> WriterFuture:
        threading.Thread(
            target=contextvars.copy_context().run, args=(consume,), name="gateway-sync", daemon=True
        ).start()
        return ended

    return channel, start


async def run_writer(channel: RowChannel, start: Callable[[], WriterFuture], rows: Rows, stream: Stream) -> Summary:
    """Start the writer, hand it all `rows`, and return its summary."""
    writing = start()
    try:
        await _put_rows(channel, rows, stream)
        summary = await asyncio.shield(_loop_future(writing))
    except BaseException as error:
        broken = error if isinstance(error, FastFlightError) else Stopped("the upload broke off")
        channel.cancel(broken)
        if not writing.done():
            await _wait_for_cleanup(writing)
        raise
    if not channel.exhausted:
        raise FastFlightError("the source ended before the upload")
    return summary


async def _put_rows(channel: RowChannel, rows: Rows, stream: Stream) -> None:
    """Put `rows` into the channel until they end, or the writer does."""
    async for batch in rows:
        stream.passing()  # raises if the client's token was revoked: nothing else asks during an upload
        size = pa.ipc.get_record_batch_size(batch)
        stream.count(batch.num_rows, size)
        try:
            await channel.aput(batch, held_bytes(batch, size))
        except Stopped:
            return
    channel.finish()


async def _wait_for_cleanup(writing: WriterFuture) -> None:
    """Wait for the writer's clean-up, even if this task is cancelled; then cancel the writer."""
    waiting = asyncio.ensure_future(asyncio.wait([_loop_future(writing)], timeout=ABORT_SECONDS))
    try:
        await asyncio.shield(waiting)
    except asyncio.CancelledError:
        await waiting
        raise
    finally:
        writing.cancel()


def _loop_future(writing: WriterFuture) -> asyncio.Future[Summary]:
    """Wrap the future for this loop. Fetch its exception: asyncio would log one that nobody awaits any more."""
    awaited = asyncio.wrap_future(writing)
    awaited.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    return awaited


async def _rows_of(channel: RowChannel) -> AsyncIterator[pa.RecordBatch]:
    """Yield the rows: a writer may close a generator, and must not close the channel."""
    async for batch in channel:
        yield batch
