"""do_exchange: receives a client's batches and sends the source's batches, at the same time.

The handler's thread sends the answer and its trailer, as for do_get. Another thread receives and validates the client's
batches, as for do_put. The call ends when the client has ended its side: Flight gives a server no way to end the call
first, and the process would crash if the handler left the reader while a thread is in it. So a client must end its side
when it gets the trailer. If the answer fails, the client gets `{"refused": true}` instead of the trailer, and the error
when it ends its side. If it does not end its side, the server reads and ignores what it sends, until the client leaves
or has sent nothing for too long (`server.deadlines`).

The same limit holds at the beginning, until the client has sent its schema, without which no answer can begin. While
the answer is being sent there is no such limit, because a client that only listens to a device has nothing to send.
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
from fastflight.service.requests import Request
from fastflight.service.source import DataSource, held_bytes
from fastflight.tables.bare import empty


def talk(
    source: DataSource[Any],
    request: Request,
    stream: Stream,
    reader: flight.MetadataRecordBatchReader,
    writer: flight.MetadataRecordBatchWriter,
    shard: Shard,
) -> None:
    """Run the exchange. Return when both sides have ended."""
    mode, exchange = source.function("exchange", request.mode)
    incoming = Incoming(reader, stream, "do_exchange")
    incoming.waiting = contextlib.nullcontext
    batches = Channel[pa.RecordBatch](WAITING_BYTES)
    opening = partial(exchange, request, incoming.schema, batches)
    if mode == "sync":
        schema, messages = answers.sync_messages(opening, stream)
    else:
        schema, messages = answers.async_messages(opening, stream, shard)
    wait = partial(shard.wait, still_wanted=stream.check)
    receiver = threading.Thread(target=_receive, args=(incoming, batches, wait), name="exchange-input", daemon=True)
    try:
        receiver.start()
        # The stream must stay registered until the client ends its side: a shutdown has to wait for that.
        stream.lasting = True
        _write(writer.begin, schema)
        for message in messages:
            if isinstance(message, tuple):
                _write(writer.write_with_metadata, *message)
            else:
                _write(writer.write_batch, message)
    except BaseException:
        _refuse(writer, schema, stream)
        raise
    finally:
        answers.close(messages)
        batches.close()
        if stream.lasting:
            with stream.waiting_for_client():
                receiver.join()
            stream.lasting = False


def _write(write: Callable[..., None], *message: Any) -> None:
    try:
        write(*message)
    except pa.ArrowException as error:  # the batches were validated, so only a client that has left can cause this
        raise Stopped("the client has left") from error


def _refuse(writer: flight.MetadataRecordBatchWriter, schema: pa.Schema, stream: Stream) -> None:
    """Tell the client that the exchange has failed, so that it stops waiting for rows and ends its side."""
    stream.offer()
    with contextlib.suppress(pa.ArrowException, OSError):  # it has left
        writer.write_with_metadata(empty(schema), pa.py_buffer(REFUSED))
    stream.taken()


def _receive(incoming: Incoming, batches: Channel[pa.RecordBatch], wait: Wait) -> None:
    """Hand the client's batches to the source. Pass on every failure, or the source would wait for ever."""
    try:
        for batch in incoming:
            batches.put(batch, held_bytes(batch, pa.ipc.get_record_batch_size(batch)), wait)
    except Stopped:
        batches.finish()  # the client has left, or the source takes no more batches: that side knows it already
    except BaseException as error:
        batches.fail(failure_of(error))
    else:
        batches.finish()
    while incoming.discard():
        pass
