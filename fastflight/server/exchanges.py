"""do_exchange: a client's batches in, the source's batches out, at the same time.

The handler's thread sends the answer, as do_get's does, to its trailer; another thread takes what the client sends,
validated as do_put's is. The call ends when the client has ended its side: Flight gives a server no way to end it
first, and leaving a reader while a thread is in it would crash. So a client that sees the trailer ends its side, or
what stands in its place where the answer failed, `{"refused": true}`: the call has the error then. One that does not is
read and ignored until it leaves, or has sent nothing for too long (`server.deadlines`). The same limit holds for a
client that does not send its schema, without which nothing can be answered. In between a client may send nothing for as
long as it likes: one that only listens to a device has nothing to send.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from fastflight.concurrency import Channel, Shard, failure_of
from fastflight.concurrency.channel import Wait
from fastflight.errors import Stopped
from fastflight.runtime.stream import Stream
from fastflight.server import answers
from fastflight.server.incoming import WAITING_BYTES, Incoming
from fastflight.server.uploads import REFUSED
from fastflight.service import dispatch
from fastflight.service.requests import Request
from fastflight.service.source import Source, held_bytes
from fastflight.tables.bare import empty


def talk(
    source: Source[Any],
    request: Request,
    stream: Stream,
    reader: flight.MetadataRecordBatchReader,
    writer: flight.MetadataRecordBatchWriter,
    shard: Shard,
) -> None:
    """Carry the exchange out. Returns when both sides have ended."""
    sync = dispatch.exchanger(source) if request.mode == "sync" else None
    asynchronous = dispatch.async_exchanger(source) if request.mode == "async" else None
    incoming = Incoming(reader, stream)
    incoming.waiting = contextlib.nullcontext
    batches = Channel[pa.RecordBatch](WAITING_BYTES)
    if sync is not None:
        schema, messages = answers.sync_messages(partial(sync, request, incoming.schema, batches), stream)
    else:
        assert asynchronous is not None
        opening = partial(asynchronous, request, incoming.schema, batches)
        schema, messages = answers.async_messages(opening, stream, shard)
    wait = partial(shard.wait, still_wanted=stream.check)
    taking = threading.Thread(target=_take, args=(incoming, batches, wait), name="exchange-input", daemon=True)
    try:
        taking.start()
        # Whoever shuts down must know of a client that does not end its side.
        stream.lasting = True
        writer.begin(schema)
        for message in messages:
            if isinstance(message, tuple):
                _write(writer.write_with_metadata, *message)
            else:
                _write(writer.write_batch, message)
    except BaseException:
        _refuse(writer, schema, stream)
        raise
    finally:
        messages.close()
        batches.close()
        if stream.lasting:
            with stream.waiting_for_client():
                taking.join()
            stream.lasting = False


def _write(write: Callable[..., None], *message: Any) -> None:
    try:
        write(*message)
    except pa.ArrowException as error:  # what is written was checked: only who reads it can be missing
        raise Stopped("the client has left") from error


def _refuse(writer: flight.MetadataRecordBatchWriter, schema: pa.Schema, stream: Stream) -> None:
    """Tell a client that waits for rows that no more will come."""
    stream.offer()
    with contextlib.suppress(pa.ArrowException, OSError):  # it has left
        writer.write_with_metadata(empty(schema), pa.py_buffer(REFUSED))
    stream.taken()


def _take(incoming: Incoming, batches: Channel[pa.RecordBatch], wait: Wait) -> None:
    """Hand the client's batches to the source. Whatever fails here is the source's error: it would wait for ever."""
    try:
        for batch in incoming:
            batches.put(batch, held_bytes(batch, pa.ipc.get_record_batch_size(batch)), wait)
    except Stopped:
        batches.finish()  # the client has left, or the source takes no more: both know by themselves
    except BaseException as error:
        batches.fail(failure_of(error))
    else:
        batches.finish()
    while incoming.discard():
        pass
