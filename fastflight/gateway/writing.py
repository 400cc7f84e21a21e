"""A write whose rows come from the gateway's loop, and whose source runs elsewhere: on a shard, or in a thread.

The rows are handed in a batch at a time, through what is bounded by bytes. When they fail, or their client leaves, the
source is told so before it has taken what still waits; what it had begun is settled when `carry_out` returns.
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
from fastflight.service.source import Sent, Summary, held_bytes

# What waits on the way to a source that writes. A board at 115200 baud takes a minute for 1 MiB: more would only wait.
WAITING_BYTES = 1024 * 1024
# What a writer gets to clean up (remove its temporary file) after the upload broke off.
ABORT_SECONDS = 5.0

Rows = AsyncIterator[pa.RecordBatch]
Handed = Channel[pa.RecordBatch]
Writing = concurrent.futures.Future[Summary]


def on_shard(shard: Shard, write: Callable[[Rows], Awaitable[Summary]]) -> tuple[Handed, Callable[[], Writing]]:
    """Where rows are handed in, and what starts a `write` that takes them on `shard`."""
    handed = Handed(WAITING_BYTES)

    async def consume() -> Summary:
        try:
            return await write(_each(handed))
        finally:
            await handed.aclose()

    return handed, lambda: shard.submit(consume())


def in_thread(write: Callable[[Sent], Summary]) -> tuple[Handed, Callable[[], Writing]]:
    """The same for a `write` that blocks."""
    handed = Handed(WAITING_BYTES)
    ended: Writing = concurrent.futures.Future()
    # A thread cannot be cancelled: one that is given up ends by itself, and says so here.
    ended.set_running_or_notify_cancel()

    def consume() -> None:
        try:
            summary = write(handed)
        except BaseException as error:
            ended.set_exception(error)
        else:
            ended.set_result(summary)
        finally:
            handed.close()

    def start() -> Writing:
        threading.Thread(
            target=contextvars.copy_context().run, args=(consume,), name="gateway-sync", daemon=True
        ).start()
        return ended

    return handed, start


async def carry_out(handed: Handed, start: Callable[[], Writing], rows: Rows, stream: Stream) -> Summary:
    """Start the writer, hand it all `rows`; its summary, once it has them all."""
    writing = start()
    try:
        await _hand_in(handed, rows, stream)
        summary = await asyncio.shield(_awaited(writing))
    except BaseException as error:
        broken = error if isinstance(error, FastFlightError) else Stopped("the upload broke off")
        handed.cancel(broken)
        if not writing.done():
            await _settled(writing)
        raise
    if not handed.exhausted:
        raise FastFlightError("the source ended before the upload")
    return summary


async def _hand_in(handed: Handed, rows: Rows, stream: Stream) -> None:
    """Hand in all `rows`, or those before the writer ended."""
    async for batch in rows:
        stream.passing()  # what is taken is asked nowhere else: its client may have been revoked
        size = pa.ipc.get_record_batch_size(batch)
        stream.count(batch.num_rows, size)
        try:
            await handed.aput(batch, held_bytes(batch, size))
        except Stopped:
            return
    handed.finish()


async def _settled(writing: Writing) -> None:
    """Wait for the writer's clean-up, also in a task that was cancelled; then end it."""
    waiting = asyncio.ensure_future(asyncio.wait([_awaited(writing)], timeout=ABORT_SECONDS))
    try:
        await asyncio.shield(waiting)
    except asyncio.CancelledError:
        await waiting
        raise
    finally:
        writing.cancel()


def _awaited(writing: Writing) -> asyncio.Future[Summary]:
    """For this loop. A failure that comes when nobody waits for it any more is not news, and is not logged."""
    awaited = asyncio.wrap_future(writing)
    awaited.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    return awaited


async def _each(handed: Handed) -> AsyncIterator[pa.RecordBatch]:
    """A generator, so that a writer may close what it is given."""
    async for batch in handed:
        yield batch
