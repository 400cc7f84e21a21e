"""do_get: a source's batches as a Flight stream.

`sync_answer` reads in the calling thread, `async_answer` on the shard; both end in one generator that Flight iterates.
What it sends is the service's `Outgoing`; notes and the trailer are app metadata, as JSON. It owns the source's
iterator: however it ends, that is closed.

While an async source is idle the client is looked after every 20 ms. A sync source is asked in the handler's thread,
where nothing can interrupt it: one that can be idle must give an empty batch now and then, as DESIGN's live streams do.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Generator, Iterator
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa

from fastflight.concurrency import Shard, drain
from fastflight.errors import Stopped
from fastflight.server.status import flight_error
from fastflight.service import dispatch
from fastflight.service.answer import Note, Outgoing, async_items, described, size_of
from fastflight.service.ledger import Stream
from fastflight.service.requests import Request
from fastflight.service.source import AsyncReading, Noted, Reading, Source

# What waits between the loop and the handler: four full messages, beyond which more gain nothing.
HANDOFF_BYTES = 8 * 1024 * 1024


# What Flight takes: a batch, or one with its app metadata.
Message = Any
Opened = tuple[pa.Schema, Generator[Message, None, None]]


def sync_answer(source: Source[Any], request: Request, stream: Stream) -> Opened:
    """Open the source here and answer from this thread."""
    read = dispatch.reader(source)
    return sync_messages(lambda: read(request), request, stream)


def async_answer(source: Source[Any], request: Request, stream: Stream, shard: Shard) -> Opened:
    """Open and iterate the source on the shard; answer from this thread."""
    read = dispatch.async_reader(source)
    return async_messages(lambda: read(request), request, stream, shard)


def sync_messages(read: Callable[[], Reading], request: Request, stream: Stream) -> Opened:
    """The schema and the messages of an answer that is read in this thread."""
    reading = read()
    schema = described(reading.schema, request, "sync")
    return schema, _begin(replace(reading, schema=schema), stream)


def async_messages(
    read: Callable[[], Awaitable[AsyncReading]], request: Request, stream: Stream, shard: Shard
) -> Opened:
    """The schema and the messages of an answer that is read on the shard."""
    items = async_items(read, request)
    drained = drain(shard, items, max_bytes=HANDOFF_BYTES, size_of=size_of, still_wanted=stream.check)
    reading = cast(AsyncReading, next(drained))
    batches = cast("Iterator[pa.RecordBatch | Noted]", drained)
    return reading.schema, _begin(Reading(reading.schema, batches, reading.summary, reading.drain), stream)


def _begin(reading: Reading, stream: Stream) -> Generator[Message, None, None]:
    if reading.drain is not None:
        stream.when_draining(reading.drain)
    generator = _send(reading, stream)
    next(generator)  # from here on, dropping it runs its `finally`: a client may leave before the first batch
    return generator


def _send(reading: Reading, stream: Stream) -> Generator[Message, None, None]:
    outcome = "cancelled"
    try:
        yield None
        outgoing = Outgoing(reading.schema, stream)
        for item in reading.batches:
            for batch, note in outgoing.pieces(item):
                yield batch if note is None else _with(batch, note)
        yield _with(pa.RecordBatch.from_pylist([], schema=reading.schema), outgoing.trailer(reading.summary()))
        outcome = "finished"
    except GeneratorExit:
        raise
    except BaseException as error:
        outcome = "cancelled" if isinstance(error, Stopped) else "failed"
        raise flight_error(error) from None
    finally:
        stream.close(outcome)
        close = getattr(reading.batches, "close", None)
        if close is not None:
            close()


def _with(batch: pa.RecordBatch, note: Note) -> Message:
    return batch, pa.py_buffer(json.dumps(note, default=str).encode())
