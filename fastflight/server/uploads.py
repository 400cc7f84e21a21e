"""do_put: writes a client's batches to a source.

The handler's thread waits for the client. A sync writer runs in a thread beside it, an async one on the shard; a
channel between them is bounded by bytes. So a write can be ended while its client sends nothing (`server.deadlines`).
The end of the stream counts only while the client is connected: a killed client looks like one that has finished.

Each accepted batch is acknowledged with `{"rows", "bytes"}`, cumulative; the last message is the writer's summary and
`"done": true`. Before the first, a source that can resume an interrupted upload says what is left of it:
`{"resume": {"bytes", "algorithm", "digest"}}`. If a write fails while its client sends nothing, the client gets
`{"refused": true}`: it ends its side then, and the call raises the error. Acknowledgements have a thread of their own,
so that a client that never reads them cannot stop its upload (Flight's `write` blocks once its window is full); if too
many wait, they are replaced by the newest.
"""

from __future__ import annotations

import concurrent.futures
import contextvars
import json
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from fastflight.concurrency import Channel, Shard, failure_of
from fastflight.concurrency.channel import Wait
from fastflight.errors import FastFlightError, Stopped
from fastflight.runtime.stream import Stream
from fastflight.server.incoming import WAITING_BYTES, Incoming
from fastflight.service import dispatch
from fastflight.service.requests import Request
from fastflight.service.source import AsyncWriter, Kept, Progress, Refused, Source, Summary, Writer, held_bytes

# The last message of a call that has failed while its client sends nothing.
REFUSED = b'{"refused": true}'
# Acknowledgements waiting for a client that does not read them, beyond which only the newest is kept.
MAX_WAITING_ACKS = 1024
# How long a failed upload waits for its acknowledgements to be written before it reads on to make room for them.
ACKS_SECONDS = 0.02
# How long a writer may clean up (remove its temporary file) after the upload was interrupted.
ABORT_SECONDS = 5.0


def take(
    source: Source[Any],
    request: Request,
    stream: Stream,
    reader: flight.MetadataRecordBatchReader,
    writer: flight.FlightMetadataWriter,
    shard: Shard,
) -> None:
    """Carry the upload out. Returns when the source has all rows and the client has the result."""
    incoming = Incoming(reader, stream)
    sync = dispatch.writer(source) if request.mode == "sync" else None
    with _Acks(writer, incoming) as acks:
        if sync is not None:
            batches, start = _in_thread(sync, request, incoming.schema, acks)
        else:
            awrite = dispatch.async_writer(source)
            batches, start = _on_loop(awrite, request, incoming.schema, acks, shard)
        wait = partial(shard.wait, still_wanted=stream.check)
        acks.done(_carry_out(batches, start, incoming, acks, stream, wait))


Batches = Channel[pa.RecordBatch]
Writing = concurrent.futures.Future[Summary]


def _on_loop(
    write: AsyncWriter[Any], request: Request, schema: pa.Schema, acks: _Acks, shard: Shard
) -> tuple[Batches, Callable[[], Writing]]:
    """The channel for the batches, and a function that starts the writer on the shard."""
    batches = Channel[pa.RecordBatch](WAITING_BYTES)

    async def consume() -> Summary:
        try:
            return await write(request, schema, _each(batches), acks.tell)
        finally:
            await batches.aclose()

    return batches, lambda: shard.submit(consume())


def _in_thread(
    write: Writer[Any], request: Request, schema: pa.Schema, acks: _Acks
) -> tuple[Batches, Callable[[], Writing]]:
    """The same in a thread of its own: the one that waits for the client could not be ended meanwhile."""
    batches = Channel[pa.RecordBatch](WAITING_BYTES)
    ended: Writing = concurrent.futures.Future()
    # A thread cannot be cancelled: one that is abandoned ends by itself.
    ended.set_running_or_notify_cancel()

    def consume() -> None:
        try:
            summary = write(request, schema, batches, acks.tell)
        except BaseException as error:
            batches.close()
            ended.set_exception(failure_of(error))
        else:
            batches.close()
            ended.set_result(summary)

    def start() -> Writing:
        run = contextvars.copy_context().run
        threading.Thread(target=run, args=(consume,), name="upload-writer", daemon=True).start()
        return ended

    return batches, start


def _carry_out(
    batches: Batches,
    start: Callable[[], Writing],
    incoming: Incoming,
    acks: _Acks,
    stream: Stream,
    wait: Wait,
) -> Summary:
    """Start the writer and hand it the client's batches."""
    writing = start()
    ended = threading.Event()
    writing.add_done_callback(lambda _: ended.set())
    # The handler may wait for a batch then, and the client for an acknowledgement.
    writing.add_done_callback(lambda ended: acks.tell(Refused()) if _failed(ended) else None)
    stream.client_waits = lambda: not writing.done() and (not batches.starving or acks.rows < stream.rows)
    # A stopped stream frees its device at once, whatever its client and this thread wait for. A writer that is busy
    # with a batch notices when it calls `check`, or is cancelled on its loop after `ABORT_SECONDS`.
    stream.when_stopped(lambda: batches.cancel(Stopped(stream.why_stop, hint="Ask again")))
    try:
        for batch in incoming:
            batches.put(batch, held_bytes(batch, pa.ipc.get_record_batch_size(batch)), wait)
        batches.finish()
        wait(ended)
    except BaseException as error:
        batches.cancel(error)
        _abort(writing)
        raise
    finally:
        stream.client_waits = None
        stream.when_stopped(None)
    summary = _result(writing)
    if not batches.exhausted:
        raise FastFlightError("the source ended before the upload")
    return summary


async def _each(batches: Batches) -> AsyncIterator[pa.RecordBatch]:
    """A generator, so that a writer may close what it is given."""
    async for batch in batches:
        yield batch


def _abort(writing: concurrent.futures.Future[Summary]) -> None:
    """Let the writer of an interrupted upload clean up. If it failed first, raise its error."""
    if not concurrent.futures.wait([writing], ABORT_SECONDS).done:
        writing.cancel()
        return
    _result(writing)


def _failed(writing: concurrent.futures.Future[Summary]) -> bool:
    return writing.cancelled() or writing.exception() is not None


def _result(writing: concurrent.futures.Future[Summary]) -> Summary:
    try:
        return writing.result()
    except concurrent.futures.CancelledError as error:
        raise failure_of(error) from error


class _Acks:
    """Writes acknowledgements from a thread of its own; leaving the context ends it."""

    def __init__(self, writer: flight.FlightMetadataWriter, incoming: Incoming) -> None:
        self._writer = writer
        self._incoming = incoming
        self._changed = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._ended = False
        self._writing = False
        # How many rows were acknowledged.
        self.rows = 0
        self._thread = threading.Thread(target=self._run, name="acks", daemon=True)

    def tell(self, state: Progress | Kept | Refused) -> None:
        """Acknowledge a batch, offer to resume an upload, or report that this one has failed. Never blocks."""
        if isinstance(state, Progress):
            self.rows = state.rows
        if isinstance(state, Refused):
            self._put(REFUSED)
        else:
            self._add({"resume": asdict(state)} if isinstance(state, Kept) else asdict(state))

    def done(self, summary: Summary) -> None:
        """Send the result, which is the last message."""
        self._add({**summary, "done": True})

    def __enter__(self) -> _Acks:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._changed:
            self._ended = True
            if kind is not None:
                self._waiting.clear()
                if self._writing:  # the client may be reading, and waiting for an answer
                    self._waiting.append(REFUSED)
            self._changed.notify()
        # Flight's writer must stay until its thread has left it. A client that does not read yet is still sending: the
        # handler takes what it sends, so that it comes to the end, where it reads.
        self._thread.join(ACKS_SECONDS)
        while self._busy() and self._incoming.discard():
            pass
        with self._incoming.waiting():
            self._thread.join()

    def _busy(self) -> bool:
        """Whether a message waits for the client. A thread without messages ends by itself."""
        with self._changed:
            return self._thread.is_alive() and (self._writing or bool(self._waiting))

    def _add(self, message: Summary) -> None:
        self._put(json.dumps(message, default=str).encode())

    def _put(self, message: bytes) -> None:
        with self._changed:
            if self._ended:  # the writer was abandoned
                return
            if len(self._waiting) >= MAX_WAITING_ACKS:
                self._waiting.clear()
            self._waiting.append(message)
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._writing = False
                self._changed.wait_for(lambda: self._waiting or self._ended)
                if not self._waiting:
                    return
                message = self._waiting.popleft()
                self._writing = True
            try:
                self._writer.write(pa.py_buffer(message))
            except (pa.ArrowException, OSError):  # the client has left, which reading notices too
                with self._changed:
                    self._waiting.clear()
