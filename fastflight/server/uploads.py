"""do_put: a client's batches into a source.

Every batch is vetted before anything touches it: a bad offset would crash the process at its first use. The handler's
thread waits for the client; a sync writer runs in a thread beside it, an async one on the shard, fed through what is
bounded by bytes. So a write can be ended while its client sends nothing (`server.deadlines`). The end of the stream
counts only while the client is connected: a killed client looks like one that has finished. A client whose rows fail
half-way sends the app metadata `{"abort": true}` without a batch; the write has failed then.

Each accepted batch is acknowledged with `{"rows", "bytes"}`, cumulative; the last message is the writer's summary and
`"done": true`. Before the first, a source that can go on with an upload that broke off says what is left of it:
`{"resume": {"bytes", "algorithm", "digest"}}`. A write that fails while its client says nothing is told by
`{"refused": true}`: the client ends its side then, and the call has the error. Acknowledgements have a thread of their
own, so that a client that never reads them cannot stop its upload (Flight's `write` blocks once its window is full);
while it does not read, the waiting ones become one.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import contextvars
import json
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from fastflight.concurrency import Channel, Shard, failure_of
from fastflight.concurrency.channel import Wait
from fastflight.errors import DataError, FastFlightError, Stopped
from fastflight.runtime.stream import Stream
from fastflight.service import dispatch
from fastflight.service.requests import Request
from fastflight.service.source import AsyncWriter, Kept, Progress, Refused, Source, Summary, Writer, held_bytes
from fastflight.tables.vetting import vet_batch, vet_schema

# The last message of what has failed while its client says nothing: it ends its side then, and has the error.
REFUSED = b'{"refused": true}'
# App metadata by which a client ends an upload as a failure: Flight itself has no way to, a stream only ends.
ABORT = b'{"abort": true}'
# Of what comes beside a batch, only `ABORT` is heeded; what other clients put there is passed over.
MAX_APP_METADATA_BYTES = 64 * 1024
# What waits between the handler and the writer. A board at 115200 baud takes a minute for 1 MiB: more would only wait.
WAITING_BYTES = 1024 * 1024
# Acknowledgements waiting for a client that does not read them, beyond which only the newest is kept.
MAX_WAITING_ACKS = 1024
# How long a failed upload waits for its acknowledgements to be written before it reads on to make room for them.
ACKS_SECONDS = 0.02
# What a writer gets to clean up (remove its temporary file) after the upload broke off.
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


class Incoming(Iterator[pa.RecordBatch]):
    """The client's batches, each validated."""

    def __init__(self, reader: flight.MetadataRecordBatchReader, stream: Stream) -> None:
        self._reader = reader
        self._stream = stream
        # Entered around each wait for the client.
        self.waiting: Callable[[], AbstractContextManager[object]] = stream.waiting_for_client
        try:
            with self.waiting():
                self.schema: pa.Schema = reader.schema
        except (pa.ArrowException, OSError) as error:
            stream.check()
            raise DataError("what is sent does not begin with a schema", where="do_put") from error
        vet_schema(self.schema, "do_put")

    def __next__(self) -> pa.RecordBatch:
        while True:
            batch = self._read()
            if batch is None:
                self._stream.check()
                raise StopIteration
            # What is taken at once is asked nowhere else: its client may have been revoked.
            self._stream.passing()
            if batch.app_metadata is not None:
                self._heed(batch.app_metadata)
            if batch.data is not None:
                if fault := _fault(batch.data):
                    del batch
                    raise DataError(f"a batch is corrupt: {fault}", where="do_put", hint="Nothing of it was used")
                return self._counted(batch.data)

    def discard(self) -> bool:
        """Read on without looking; False at the end."""
        with contextlib.suppress(FastFlightError):
            return self._read() is not None
        return False

    @staticmethod
    def _heed(metadata: pa.Buffer) -> None:
        if metadata.size > MAX_APP_METADATA_BYTES:
            raise DataError(
                f"{metadata.size} bytes of app metadata are too many: {MAX_APP_METADATA_BYTES} are allowed",
                where="do_put",
            )
        if metadata.to_pybytes() == ABORT:
            raise Stopped("the client gave the upload up", hint="What was there before is still there")

    def _read(self) -> flight.FlightStreamChunk | None:
        try:
            with self.waiting():
                return self._reader.read_chunk()
        except StopIteration:
            return None
        except (pa.ArrowException, OSError) as error:
            self._stream.check()
            raise DataError("the upload is not a stream of record batches", where="do_put") from error

    def _counted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self._stream.count(batch.num_rows, pa.ipc.get_record_batch_size(batch))
        return batch


Batches = Channel[pa.RecordBatch]
Writing = concurrent.futures.Future[Summary]


def _fault(batch: pa.RecordBatch) -> str:
    """What is wrong with a batch; as text, because an error would keep its frames, and so the batch, in memory."""
    try:
        vet_batch(batch)
    except pa.ArrowException as error:
        return str(error)
    return ""


def _on_loop(
    write: AsyncWriter[Any], request: Request, schema: pa.Schema, acks: _Acks, shard: Shard
) -> tuple[Batches, Callable[[], Writing]]:
    """Where batches are handed in, and what starts the writer that takes them, on the shard."""
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
    """The same in a thread: it must not be the one that waits for the client, or nothing could end it meanwhile."""
    batches = Channel[pa.RecordBatch](WAITING_BYTES)
    ended: Writing = concurrent.futures.Future()
    # A thread cannot be cancelled: one that is given up ends by itself, and says so here.
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
    """Start the writer and hand it what comes."""
    writing = start()
    ended = threading.Event()
    writing.add_done_callback(lambda _: ended.set())
    # The handler may be waiting for a batch then, and the client for word of the last one.
    writing.add_done_callback(lambda ended: acks.tell(Refused()) if _failed(ended) else None)
    stream.client_waits = lambda: not writing.done() and (not batches.starving or acks.rows < stream.rows)
    # A stream that is to end does so at once for its device, whatever its client and this thread wait for; a writer
    # that is at a batch hears of it when it looks (`Sent.check`), or is cancelled on its loop by and by.
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
    """The upload broke off. Let the writer clean up; if it failed first, its error is the one to tell."""
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
        # Those that were acknowledged.
        self.rows = 0
        self._thread = threading.Thread(target=self._run, name="acks", daemon=True)

    def tell(self, state: Progress | Kept | Refused) -> None:
        """Acknowledge a batch, say what was kept of an earlier upload, or that this one has failed. Never blocks."""
        if isinstance(state, Progress):
            self.rows = state.rows
        if isinstance(state, Refused):
            self._put(REFUSED)
        else:
            self._add({"resume": asdict(state)} if isinstance(state, Kept) else asdict(state))

    def done(self, summary: Summary) -> None:
        """Tell the result. The last message."""
        self._add({**summary, "done": True})

    def __enter__(self) -> _Acks:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._changed:
            self._ended = True
            if kind is not None:
                self._waiting.clear()
                if self._writing:  # its client may read all the same, and wait for word: then it has one
                    self._waiting.append(REFUSED)
            self._changed.notify()
        # Flight's writer must not be left while a thread is in it. A client that neither reads nor was answered yet is
        # still sending: taking that is what lets it come to the end, where it reads.
        self._thread.join(ACKS_SECONDS)
        while self._busy() and self._incoming.discard():
            pass
        with self._incoming.waiting():
            self._thread.join()

    def _busy(self) -> bool:
        """Whether there is something that the client has to take. A thread that has nothing to write ends by itself."""
        with self._changed:
            return self._thread.is_alive() and (self._writing or bool(self._waiting))

    def _add(self, message: Summary) -> None:
        self._put(json.dumps(message, default=str).encode())

    def _put(self, message: bytes) -> None:
        with self._changed:
            if self._ended:  # by a writer that was given up
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
            except (pa.ArrowException, OSError):  # the client has left: reading says so, too
                with self._changed:
                    self._waiting.clear()
