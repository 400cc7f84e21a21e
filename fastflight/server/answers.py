"""do_get: sends a source's rows as a Flight stream.

`sync_messages` reads the source in the calling thread. `async_messages` reads it on the shard, ahead of the client.
Both return the schema and a generator of messages, which Flight iterates. A message is a record batch. Batches with a
note, and the trailer, also have app metadata (JSON). The generator owns the reading of the source and closes it however
the answer ends. If the source has all its rows when it opens (`Reading.rest` is None), all messages are made before the
first is sent.

While an async source is idle, the thread that waits for it checks once a second whether the client is connected. A
sync source runs in Flight's thread, where nothing can interrupt it, so a sync source that can be idle yields an empty
list now and then. If a stream is stopped while its client does not read, the source is closed at once in both cases.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import pyarrow as pa

from fastflight.concurrency import Shard, failure_of, read_ahead
from fastflight.errors import Stopped
from fastflight.runtime.failure import log_unexpected
from fastflight.runtime.outgoing import Measured, Outgoing, memory_of
from fastflight.runtime.stream import Stream
from fastflight.server.interruption import Interruptible
from fastflight.server.status import flight_error
from fastflight.service.source import Note, Reading
from fastflight.tables.bare import empty

T = TypeVar("T")

# How much is read ahead of one client. All streams together wait with at most this times the admitted streams.
AHEAD_BYTES = 1024 * 1024
# gRPC takes this much of an answer at once, whether the client reads it or not: a stream's first window is 64 KiB.
UNREAD_BYTES = 32 * 1024
# In a message a column takes less than this, besides its values.
MESSAGE_COLUMN_BYTES = 256

_JSON = json.JSONEncoder(default=str)

# What Flight sends: a batch, or a batch and its app metadata.
FlightMessage = Any
Opened = tuple[pa.Schema, Iterator[FlightMessage]]


def sync_messages(read: Callable[[], Reading], stream: Stream) -> Opened:
    """Return the schema and the messages of an answer that is read in the calling thread."""
    outgoing = Outgoing(stream)
    messages = outgoing.opened(read)
    first = _of_source(partial(next, messages))
    if outgoing.reading.rest is None:
        return _whole(outgoing, first, stream)
    with closing_on_error(messages):
        rest = Interruptible(messages, stream)
        stream.when_stopped(rest.interrupt)
        return _begin(outgoing, chain((first,), rest), rest, stream)


def async_messages(read: Callable[[], Awaitable[Reading]], stream: Stream, shard: Shard) -> Opened:
    """Return the schema and the messages of an answer that is read on the shard."""
    outgoing = Outgoing(stream)
    lists = read_ahead(
        shard,
        partial(outgoing.aopened, read),
        max_bytes=AHEAD_BYTES,
        size_of=memory_of,
        still_wanted=stream.passing,
        when_stopped=stream.when_stopped,
    )
    with closing_on_error(lists):
        try:
            waiting = map(chain.from_iterable, lists)
            first = next(waiting)
            if outgoing.reading.rest is None:
                return _whole(outgoing, chain(first, *waiting), stream)
        except BaseException:
            if stream.why_stop:  # the client gets the reason of the stop, not the error that the stop has caused
                stream.check()
            raise
        return _begin(outgoing, chain((first,), waiting), lists, stream)


@contextlib.contextmanager
def closing_on_error(owned: object) -> Iterator[None]:
    """Close `owned`, which releases its device or file, if the block raises."""
    try:
        yield
    except BaseException:
        close(owned)
        raise


def close(owned: object) -> None:
    """Close what has a `close` method."""
    closing = getattr(owned, "close", None)
    if closing is not None:
        closing()


def _whole(outgoing: Outgoing, messages: Iterable[Measured], stream: Stream) -> Opened:
    """Return the messages of an answer that is complete, all made now. The trailer is the note of the last one.

    The stream of a small answer is closed now: no client can keep it waiting.
    """
    made = list(outgoing.sent((messages,)))
    if not made or made[-1][1] is not None:
        made.append((empty(outgoing.schema), None))
    last, _ = made.pop()
    ready = [batch if note is None else _with(batch, note) for batch, note in made]
    ready.append((last, pa.py_buffer(_of_source(outgoing.trailer_json))))
    besides = MESSAGE_COLUMN_BYTES * len(outgoing.schema) * (1 + len(ready)) + len(stream.resolved.ticket)
    if stream.bytes + besides <= UNREAD_BYTES:
        stream.close("finished")
        return outgoing.schema, iter(ready)
    return outgoing.schema, _started(_send_made(ready, stream))


def _send_made(messages: list[FlightMessage], stream: Stream) -> Generator[FlightMessage, None, None]:
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


def _begin(outgoing: Outgoing, waiting: Iterable[Iterable[Measured]], owned: object, stream: Stream) -> Opened:
    """Return the schema and the messages of an answer. `owned` is closed at the end."""
    if outgoing.reading.drain is not None:
        stream.when_draining(outgoing.reading.drain)
    return outgoing.schema, _started(_send(outgoing, waiting, owned, stream))


def _started(generator: Generator[FlightMessage, None, None]) -> Generator[FlightMessage, None, None]:
    """Run the generator to its first `yield`, so that dropping it runs its `finally`.

    A client may leave before the first batch.
    """
    next(generator)
    return generator


def _send(
    outgoing: Outgoing, waiting: Iterable[Iterable[Measured]], owned: object, stream: Stream
) -> Generator[FlightMessage, None, None]:
    outcome, failure = "cancelled", None
    # GeneratorExit at the `yield` of a message means that the client has left. Anywhere else the source raised it.
    with_client = True
    try:
        yield None
        batch: pa.RecordBatch | None = None
        with_client = False
        for batch, note in outgoing.sent(waiting):
            stream.offered = time.monotonic()
            with_client = True
            yield batch if note is None else _with(batch, note)
            with_client = False
            stream.offered = 0.0
        if stream.why_stop:  # a source that was stopped may look like one that has ended
            stream.check()
        # The trailer reports success. So the source is closed first: one that cannot be closed has failed.
        closing, owned = owned, None
        close(closing)
        # Slicing a batch takes a tenth of the time of making an empty one, and keeps the interpreter's lock.
        last = empty(outgoing.schema) if batch is None else batch.slice(0, 0)
        message = last, pa.py_buffer(outgoing.trailer_json())
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
        except BaseException as error:  # the client has got another error, or has left
            log_unexpected(error, stream.trace)


def _reason(error: BaseException, stream: Stream) -> BaseException:
    """Return the error for the client: if the stream was stopped, the reason of that, else `error`."""
    if stream.why_stop:
        try:
            stream.check()
        except BaseException as stopped:
            return stopped
    return error


def _of_source(call: Callable[[], T]) -> T:
    """Call a function of the source. Its GeneratorExit is replaced: it would look as if the client had left."""
    try:
        return call()
    except GeneratorExit as error:
        raise failure_of(error) from error


def _with(batch: pa.RecordBatch, note: Note) -> FlightMessage:
    return batch, pa.py_buffer(_JSON.encode(note).encode())
