"""do_get: a source's batches as a Flight stream.

`sync_answer` reads in the calling thread, `async_answer` on the shard; both end in one generator that Flight iterates.
What it sends is the service's `Outgoing`; notes and the trailer are app metadata, as JSON. It owns the source's
iterator: however it ends, that is closed.

While an async source is idle the client is looked after every 40 ms. A sync source is asked in the handler's thread,
where nothing can interrupt it: one that can be idle must give an empty batch now and then, as DESIGN's live streams do.
A stream that is stopped while its client takes nothing gives its source back on the spot, in either case.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, TypeVar, cast

import pyarrow as pa

from fastflight.concurrency import Shard, failure_of, lots_ahead
from fastflight.errors import Stopped
from fastflight.runtime.failure import numbered
from fastflight.runtime.joining import Item, gathered, joined
from fastflight.runtime.outgoing import Note, Outgoing, Weighed, async_items, described, most_rows
from fastflight.runtime.stream import Stream
from fastflight.server.interruption import Interruptible
from fastflight.server.status import flight_error
from fastflight.service import dispatch
from fastflight.service.requests import Request
from fastflight.service.source import AsyncReading, Noted, Reading, Source
from fastflight.tables.bare import empty

T = TypeVar("T")

# What is read ahead of one client: with as many streams as are admitted, the most that waits in a server.
AHEAD_BYTES = 1024 * 1024


# What Flight takes: a batch, one with its app metadata, or a reader of batches.
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
    reading = _of_source(read)
    with closing_on_error(reading.batches):
        batches = Interruptible(reading.batches, stream)
        schema = described(reading.schema, request, "sync")
        stream.when_stopped(batches.interrupt)
        items = joined(gathered(batches, schema), schema, most_rows(request)) if reading.ready else batches
        return schema, _begin(replace(reading, schema=schema, batches=batches), items, batches, stream)


def async_messages(
    read: Callable[[], Awaitable[AsyncReading]], request: Request, stream: Stream, shard: Shard
) -> Opened:
    """The schema and the messages of an answer that is read on the shard."""
    lots = lots_ahead(
        shard,
        partial(async_items, read, request),
        max_bytes=AHEAD_BYTES,
        size_of=Weighed(),
        still_wanted=stream.check,
        when_stopped=stream.when_stopped,
    )
    with closing_on_error(lots):
        try:
            first = next(lots)
        except BaseException:
            if stream.why_stop:  # what the client is to know, whatever came of it here
                stream.check()
            raise
        reading, *more = first
        assert isinstance(reading, AsyncReading)
        rest = cast("Iterator[Sequence[Item]]", chain([more], lots))
        return reading.schema, _begin(reading, joined(rest, reading.schema, most_rows(request)), lots, stream)


@contextlib.contextmanager
def closing_on_error(owned: object) -> Iterator[None]:
    """Close `owned`, and with it give back what it holds, if the block raises."""
    try:
        yield
    except BaseException:
        _close(owned)
        raise


def _begin(
    reading: Reading | AsyncReading, items: Iterator[Item], owned: object, stream: Stream
) -> Generator[Message, None, None]:
    """What is sent of `items`; `owned` is closed at the end."""
    if reading.drain is not None:
        stream.when_draining(reading.drain)
    generator = _send(reading, items, owned, stream)
    next(generator)  # from here on, dropping it runs its `finally`: a client may leave before the first batch
    return generator


def _send(
    reading: Reading | AsyncReading, items: Iterator[Item], owned: object, stream: Stream
) -> Generator[Message, None, None]:
    outcome, failure = "cancelled", None
    try:
        yield None
        outgoing = Outgoing(reading.schema, stream)
        run = _Run(outgoing, items)
        while not run.ended:
            yield pa.RecordBatchReader.from_batches(reading.schema, run)
            if stream.why_stop:  # what is there of the source may look like its end, or fail for another reason
                stream.check()
            if run.error is not None:
                raise run.error
            if run.noted is not None:
                for batch, note in outgoing.pieces(run.noted):
                    yield batch if note is None else _with(batch, note)
        # The trailer says that all is well: what cannot be closed has failed.
        closing, owned = owned, None
        _of_source(lambda: _close(closing))
        trailer = outgoing.trailer(_of_source(reading.summary))
        outgoing.offer()
        yield _with(empty(reading.schema), trailer)
        outcome = "finished"
    except GeneratorExit:
        raise
    except BaseException as error:
        outcome, failure = "cancelled" if isinstance(error, Stopped) else "failed", error
        raise flight_error(error, stream.trace) from None
    finally:
        stream.offered = 0.0
        stream.when_stopped(None)
        stream.close(outcome, failure)
        try:
            _close(owned)
        except BaseException as error:  # the client knows of another failure, or has left
            numbered(error, stream.trace)


class _Run:
    """Batches that nothing stands between: C++ takes one after the other from here, without Flight's generator.

    Each time it is iterated it goes on after what is `noted`. An error that C++ met would lose its type on the way to
    the client, and tell it our traceback: it is kept in `error`, and looks like the end of the run.
    """

    def __init__(self, outgoing: Outgoing, items: Iterator[Item]) -> None:
        self._outgoing = outgoing
        self._items = items
        self.noted: Noted | None = None
        self.error: Exception | None = None
        self.ended = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            self.noted = yield from self._outgoing.batches(self._items)
            self.ended = self.noted is None
        except BaseException as error:  # GeneratorExit is the source's own: this one closed is never asked again
            self.error = failure_of(error)


def _of_source(call: Callable[[], T]) -> T:
    """What the source gives; its GeneratorExit would pass for a client that has left."""
    try:
        return call()
    except GeneratorExit as error:
        raise failure_of(error) from error


def _close(owned: object) -> None:
    close = getattr(owned, "close", None)
    if close is not None:
        close()


def _with(batch: pa.RecordBatch, note: Note) -> Message:
    return batch, pa.py_buffer(json.dumps(note, default=str).encode())
