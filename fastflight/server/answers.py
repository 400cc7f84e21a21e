"""do_get: a source's rows as a Flight stream.

`sync_answer` reads in the calling thread, `async_answer` on the shard, ahead of the client; both end in one generator
that Flight iterates: record batches, those with a note and the trailer with app metadata (JSON). It owns the source's
iterator: however it ends, that is closed.

While an async source is idle, its handler asks twice a second whether the client is still there. A sync source runs in
the handler's thread, where nothing can interrupt it: one that can be idle gives an empty lot now and then. A stream
that is stopped while its client takes nothing gives its source back at once, in either case.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, TypeVar, cast

import pyarrow as pa

from fastflight.concurrency import Shard, failure_of, lots_ahead
from fastflight.errors import Stopped
from fastflight.runtime.failure import numbered
from fastflight.runtime.outgoing import Account, Joiner, Note, Packer, Run, aruns, close, held
from fastflight.runtime.stream import Stream
from fastflight.server.interruption import Interruptible
from fastflight.server.status import flight_error
from fastflight.service import dispatch
from fastflight.service.requests import Request
from fastflight.service.source import AsyncReading, Reading, Source
from fastflight.tables.bare import empty

T = TypeVar("T")

# What is read ahead of one client: with as many streams as are admitted, the most that waits in a server.
AHEAD_BYTES = 1024 * 1024

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
    reading = _of_source(read)
    with closing_on_error(reading.lots):
        packer = Packer(reading.schema, request, "sync")
        lots = Interruptible(reading.lots, stream)
        stream.when_stopped(lots.interrupt)
        runs = map(packer.pack, chain((reading.first,) if reading.first else (), lots))
        return packer.schema, _begin(packer.schema, request, reading, runs, lots, stream)


def async_messages(
    read: Callable[[], Awaitable[AsyncReading]], request: Request, stream: Stream, shard: Shard
) -> Opened:
    """The schema and the messages of an answer that is read on the shard."""
    waiting = lots_ahead(
        shard,
        partial(aruns, read, request),
        max_bytes=AHEAD_BYTES,
        size_of=held,
        still_wanted=stream.check,
        when_stopped=stream.when_stopped,
    )
    with closing_on_error(waiting):
        try:
            first = next(waiting)
        except BaseException:
            if stream.why_stop:  # what the client is to know, whatever came of it here
                stream.check()
            raise
        reading, *more = first
        reading = cast(AsyncReading, reading)
        runs = cast("Iterator[Sequence[Run]]", chain((more,), waiting))
        return reading.schema, _begin(reading.schema, request, reading, runs, waiting, stream)


@contextlib.contextmanager
def closing_on_error(owned: object) -> Iterator[None]:
    """Close `owned`, and with it give back what it holds, if the block raises."""
    try:
        yield
    except BaseException:
        close(owned)
        raise


def _begin(
    schema: pa.Schema,
    request: Request,
    reading: Reading | AsyncReading,
    runs: Iterator[Iterable[Run]],
    owned: object,
    stream: Stream,
) -> Generator[Message, None, None]:
    """What is sent; `owned` is closed at the end."""
    if reading.drain is not None:
        stream.when_draining(reading.drain)
    generator = _send(schema, request, reading, runs, owned, stream)
    next(generator)  # from here on, dropping it runs its `finally`: a client may leave before the first batch
    return generator


def _send(
    schema: pa.Schema,
    request: Request,
    reading: Reading | AsyncReading,
    runs: Iterator[Iterable[Run]],
    owned: object,
    stream: Stream,
) -> Generator[Message, None, None]:
    outcome, failure = "cancelled", None
    try:
        yield None
        account, joiner = Account(stream), Joiner(schema, request)
        while (waiting := _next(runs, stream)) is not None:
            for run in joiner.join(waiting):
                account.sending(run)
                for batch, note in run.pieces():
                    stream.offer()
                    yield batch if note is None else _with(batch, note)
                stream.taken()
        # The trailer says that all is well: what cannot be closed has failed.
        closing, owned = owned, None
        _of_source(lambda: close(closing))
        trailer = account.trailer(_of_source(reading.summary))
        stream.offer()
        yield _with(empty(schema), trailer)
        outcome = "finished"
    except GeneratorExit:
        raise
    except BaseException as error:
        outcome, failure = "cancelled" if isinstance(error, Stopped) else "failed", error
        raise flight_error(error, stream.trace) from None
    finally:
        stream.taken()
        stream.when_stopped(None)
        stream.close(outcome, failure)
        try:
            close(owned)
        except BaseException as error:  # the client knows of another failure, or has left
            numbered(error, stream.trace)


def _next(runs: Iterator[Iterable[Run]], stream: Stream) -> Iterable[Run] | None:
    """What the source gives next; None at its end, unless the stream was stopped."""
    try:
        waiting = _of_source(lambda: next(runs, None))
    except BaseException:
        if stream.why_stop:  # what the client is to know, whatever came of it here
            stream.check()
        raise
    if waiting is None and stream.why_stop:  # what is there of the source may look like its end
        stream.check()
    return waiting


def _of_source(call: Callable[[], T]) -> T:
    """What the source gives; its GeneratorExit would pass for a client that has left."""
    try:
        return call()
    except GeneratorExit as error:
        raise failure_of(error) from error


def _with(batch: pa.RecordBatch, note: Note) -> Message:
    return batch, pa.py_buffer(json.dumps(note, default=str).encode())
