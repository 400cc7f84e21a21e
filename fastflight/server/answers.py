"""do_get: a source's rows as a Flight stream.

`sync_answer` reads in the calling thread, `async_answer` on the shard, ahead of the client; both end in a generator
that Flight iterates: record batches, those with a note and the trailer with app metadata (JSON). It owns the source's
iterator: however it ends, that is closed. Of an answer that is whole when its source opens it has only to send.

While an async source is idle, its handler asks twice a second whether the client is still there. A sync source runs in
the handler's thread, where nothing can interrupt it: one that can be idle gives an empty lot now and then. A stream
that is stopped while its client takes nothing gives its source back at once, in either case.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, TypeVar, cast

import pyarrow as pa

from fastflight.concurrency import Shard, failure_of, lots_ahead
from fastflight.errors import Stopped
from fastflight.runtime.failure import numbered
from fastflight.runtime.outgoing import Account, Note, Packer, Run, aruns, close, held, joined
from fastflight.runtime.stream import Stream
from fastflight.server.interruption import Interruptible
from fastflight.server.status import flight_error
from fastflight.service import dispatch
from fastflight.service.source import AsyncReading, Reading
from fastflight.tables.bare import empty

T = TypeVar("T")

# What is read ahead of one client: with as many streams as are admitted, the most that waits in a server.
AHEAD_BYTES = 1024 * 1024

_JSON = json.JSONEncoder(default=str)

# What Flight takes: a batch, or one with its app metadata.
Message = Any
Opened = tuple[pa.Schema, Generator[Message, None, None]]


def sync_answer(stream: Stream) -> Opened:
    """Open the source here and answer from this thread."""
    return sync_messages(partial(dispatch.reader(stream.asked.source), stream.asked.request), stream)


def async_answer(stream: Stream, shard: Shard) -> Opened:
    """Open and iterate the source on the shard; answer from this thread."""
    return async_messages(partial(dispatch.async_reader(stream.asked.source), stream.asked.request), stream, shard)


def sync_messages(read: Callable[[], Reading], stream: Stream) -> Opened:
    """The schema and the messages of an answer that is read in this thread."""
    reading = _of_source(read)
    with closing_on_error(reading.lots):
        packer = Packer(stream.asked.answer_schema(reading.schema, "sync"))
        reading = replace(reading, schema=packer.schema)
        if reading.is_whole:
            return _whole(reading, packer.pack(reading.first), stream)
        lots = Interruptible(reading.lots, stream)
        stream.when_stopped(lots.interrupt)
        packed = packer.packed(chain((reading.first,) if reading.first else (), lots))
        return _begin(reading, packed, lots, stream)


def async_messages(read: Callable[[], Awaitable[AsyncReading]], stream: Stream, shard: Shard) -> Opened:
    """The schema and the messages of an answer that is read on the shard."""
    waiting = lots_ahead(
        shard,
        partial(aruns, read, stream.asked),
        max_bytes=AHEAD_BYTES,
        size_of=held,
        still_wanted=stream.check,
        when_stopped=stream.when_stopped,
    )
    with closing_on_error(waiting):
        try:
            first, *packed = next(waiting)
            reading = cast(AsyncReading, first)
            lots = map(chain.from_iterable, cast("Iterator[Sequence[list[Run]]]", chain((packed,), waiting)))
            if reading.is_whole:
                return _whole(reading, chain.from_iterable(lots), stream)
        except BaseException:
            if stream.why_stop:  # what the client is to know, whatever came of it here
                stream.check()
            raise
        return _begin(reading, lots, waiting, stream)


@contextlib.contextmanager
def closing_on_error(owned: object) -> Iterator[None]:
    """Close `owned`, and with it give back what it holds, if the block raises."""
    try:
        yield
    except BaseException:
        close(owned)
        raise


def _whole(reading: Reading | AsyncReading, runs: Iterable[Run], stream: Stream) -> Opened:
    """What is sent of a reading that is whole: made now, so that Flight's threads have little to do for it."""
    account = Account(stream)
    messages: list[Message] = []
    for run in account.sending(joined((runs,), stream.asked.request)):
        messages += (batch if note is None else _with(batch, note) for batch, note in run.pieces())
    trailer = account.trailer(_of_source(reading.summary))
    is_plain = bool(messages) and isinstance(messages[-1], pa.RecordBatch)
    messages.append(_with(messages.pop() if is_plain else empty(reading.schema), trailer))
    return reading.schema, _started(_send_made(messages, stream))


def _send_made(messages: list[Message], stream: Stream) -> Generator[Message, None, None]:
    outcome = "cancelled"
    try:
        yield None
        for message in messages:
            stream.offered = time.monotonic()
            yield message
        outcome = "finished"
    finally:
        stream.taken()
        stream.close(outcome)


def _begin(reading: Reading | AsyncReading, runs: Iterable[Iterable[Run]], owned: object, stream: Stream) -> Opened:
    """What is sent of a reading whose schema is the one that is sent; `owned` is closed at the end."""
    if reading.drain is not None:
        stream.when_draining(reading.drain)
    return reading.schema, _started(_send(reading, runs, owned, stream))


def _started(generator: Generator[Message, None, None]) -> Generator[Message, None, None]:
    """From here on, dropping the generator runs its `finally`: a client may leave before the first batch."""
    next(generator)
    return generator


def _send(
    reading: Reading | AsyncReading, runs: Iterable[Iterable[Run]], owned: object, stream: Stream
) -> Generator[Message, None, None]:
    outcome, failure = "cancelled", None
    # GeneratorExit while the client has a message says that it has left; at any other time it is the source's failure.
    with_client = True
    try:
        yield None
        account = Account(stream)
        batch: pa.RecordBatch | None = None
        with_client = False
        for run in account.sending(joined(runs, stream.asked.request)):
            note = run.note
            for batch in run.batches:
                stream.offered = time.monotonic()
                with_client = True
                yield batch if note is None else _with(batch, note)
                with_client = False
                note = None
            stream.offered = 0.0
        if stream.why_stop:  # what is there of the source may look like its end
            stream.check()
        # The trailer says that all is well: what cannot be closed has failed.
        closing, owned = owned, None
        close(closing)
        # To cut a batch short takes a tenth of making an empty one, and keeps the interpreter's lock.
        last = empty(reading.schema) if batch is None else batch.slice(0, 0)
        message = _with(last, account.trailer(reading.summary()))
        stream.offered = time.monotonic()
        with_client = True
        yield message
        outcome = "finished"
    except BaseException as error:
        if with_client and isinstance(error, GeneratorExit):
            raise
        failure = _reason(error, stream)
        outcome = "cancelled" if isinstance(failure, Stopped) else "failed"
        raise flight_error(failure, stream.trace) from None
    finally:
        stream.taken()
        stream.when_stopped(None)
        stream.close(outcome, failure)
        try:
            close(owned)
        except BaseException as error:  # the client knows of another failure, or has left
            numbered(error, stream.trace)


def _reason(error: BaseException, stream: Stream) -> BaseException:
    """What the client is to know of `error`: why the stream was stopped, if it was, whatever came of that."""
    if stream.why_stop:
        try:
            stream.check()
        except BaseException as stopped:
            return stopped
    return error


def _of_source(call: Callable[[], T]) -> T:
    """What the source gives; its GeneratorExit would pass for a client that has left."""
    try:
        return call()
    except GeneratorExit as error:
        raise failure_of(error) from error


def _with(batch: pa.RecordBatch, note: Note) -> Message:
    return batch, pa.py_buffer(_JSON.encode(note).encode())
