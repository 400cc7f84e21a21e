"""Hands the rows of an upload from the gateway's event loop to a writer elsewhere: in a thread, or on a shard.

They cross through a `Channel`, which is bounded by bytes. If the rows fail or their client leaves, the writer gets that
error before the rows that still wait, and has cleaned up when the call raises. The other way, from a source to the
loop, goes by `concurrency.across` and `iterate_in_thread`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pyarrow as pa

from fastflight.concurrency import Channel, Shard, off_loop
from fastflight.concurrency.offload import unbroken
from fastflight.errors import FastFlightError, Stopped
from fastflight.runtime.stream import Stream
from fastflight.service.source import Incoming, Summary, held_bytes

# The most bytes of rows that wait for a source that writes. A board at 115200 baud takes a minute for 1 MiB, so more
# would only wait.
WAITING_BYTES = 1024 * 1024
# How long a writer may clean up (remove its temporary file) after the upload broke off.
ABORT_SECONDS = 5.0

Rows = AsyncIterator[pa.RecordBatch]


async def write_on_shard(
    shard: Shard, write: Callable[[Rows], Awaitable[Summary]], rows: Rows, stream: Stream
) -> Summary:
    """Run `write` on `shard`, hand it all `rows`, and return its summary."""
    channel = Channel[pa.RecordBatch](WAITING_BYTES)

    async def consume() -> Summary:
        return await write(_rows_of(channel))

    return await _hand_over(channel, asyncio.wrap_future(shard.submit(consume())), rows, stream)


async def write_in_thread(write: Callable[[Incoming], Summary], rows: Rows, stream: Stream) -> Summary:
    """As `write_on_shard`, for a `write` that blocks: it gets a thread."""
    channel = Channel[pa.RecordBatch](WAITING_BYTES)
    return await _hand_over(channel, asyncio.ensure_future(off_loop(write, channel)), rows, stream)


async def _hand_over(
    channel: Channel[pa.RecordBatch], writing: asyncio.Future[Summary], rows: Rows, stream: Stream
) -> Summary:
    writing.add_done_callback(lambda _: channel.cancel())  # it takes no more
    try:
        await _put_rows(channel, rows, stream)
        summary = await asyncio.shield(writing)
    except BaseException as error:
        channel.cancel(error if isinstance(error, FastFlightError) else Stopped("the upload broke off"))
        await unbroken(_end(writing))
        raise
    if not channel.exhausted:
        raise FastFlightError("the source ended before the upload")
    return summary


async def _put_rows(channel: Channel[pa.RecordBatch], rows: Rows, stream: Stream) -> None:
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


async def _end(writing: asyncio.Future[Summary]) -> None:
    """Wait for the writer's clean-up; then cancel the writer."""
    await asyncio.wait([writing], timeout=ABORT_SECONDS)
    if not writing.cancel() and not writing.cancelled():
        writing.exception()  # fetched, as asyncio logs an exception that nobody has fetched


async def _rows_of(channel: Channel[pa.RecordBatch]) -> Rows:
    """Yield the rows: a writer may close a generator, and must not close the channel."""
    async for batch in channel:
        yield batch
