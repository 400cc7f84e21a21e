"""do_put: writes a client's batches to a source.

The handler's thread receives the client's batches. A sync writer runs in another thread, an async writer on the shard.
A channel between them is bounded by bytes. So a write can be ended while its client sends nothing (`server.deadlines`).
The end of the client's stream counts only while the client is connected, because Flight reports a killed client as one
that has finished.

The client gets these JSON messages:

- `{"resume": {"bytes", "algorithm", "digest"}}`, before all others: what an interrupted upload has left on the device,
  if the source can resume it.
- `{"rows", "bytes"}` after each accepted batch: the totals so far.
- `{"refused": true}` if the write fails while the client sends nothing. The client must end its side; the call then
  raises the error.
- The writer's summary and `"done": true`, as the last message.

A thread of its own writes these messages, so that a client that never reads them cannot stop its upload (Flight's
`write` blocks once its window is full). If too many messages wait, only the newest is kept.
"""

from __future__ import annotations

import concurrent.futures
import contextvars
import json
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
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
from fastflight.service.requests import Request
from fastflight.service.source import (
    Acknowledge,
    DataSource,
    PartialUpload,
    Progress,
    Refused,
    Summary,
    held_bytes,
)

# The last message of a call that fails while its client sends nothing.
REFUSED = b'{"refused": true}'
# How many acknowledgements may wait for a client that does not read them. Beyond that, only the newest is kept.
MAX_WAITING_ACKS = 1024
# How long the end of an upload waits for its acknowledgements to be written, before it reads and drops what the client
# still sends.
ACKS_SECONDS = 0.02
# How long a writer may clean up (remove its temporary file) after the upload was interrupted.
ABORT_SECONDS = 5.0


def take(
    source: DataSource[Any],
    request: Request,
    stream: Stream,
    reader: flight.MetadataRecordBatchReader,
    writer: flight.FlightMetadataWriter,
    shard: Shard,
) -> None:
    """Run the upload. Return when the source has all rows and the result was written to the client."""
    incoming = Incoming(reader, stream, "do_put")
    mode, write = source.function("write", request.mode)
    with _Acks(writer, incoming) as acks:
        if mode == "sync":
            batches, start = _in_thread(partial(write, request, incoming.schema), acks)
        else:
            batches, start = _on_loop(partial(write, request, incoming.schema), acks, shard)
        wait = partial(shard.wait, still_wanted=stream.check)
        acks.done(_carry_out(batches, start, incoming, acks, stream, wait))


Batches = Channel[pa.RecordBatch]
Writing = concurrent.futures.Future[Summary]


def _on_loop(
    write: Callable[[AsyncIterator[pa.RecordBatch], Acknowledge], Awaitable[Summary]], acks: _Acks, shard: Shard
) -> tuple[Batches, Callable[[], Writing]]:
    """Return the channel for the batches, and a function that starts the writer on the shard."""
    batches = Channel[pa.RecordBatch](WAITING_BYTES)

    async def consume() -> Summary:
        try:
            return await write(_each(batches), acks.send)
        finally:
            await batches.aclose()

    return batches, lambda: shard.submit(consume())


def _in_thread(write: Callable[[Batches, Acknowledge], Summary], acks: _Acks) -> tuple[Batches, Callable[[], Writing]]:
    """As `_on_loop`, for a sync writer, which runs in a thread of its own.

    The handler's thread receives the client's batches, and nothing can end that wait.
    """
    batches = Channel[pa.RecordBatch](WAITING_BYTES)
    ended: Writing = concurrent.futures.Future()
    # From here on `cancel` has no effect on the future: a thread cannot be cancelled, and ends by itself.
    ended.set_running_or_notify_cancel()

    def consume() -> None:
        try:
            summary = write(batches, acks.send)
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
    # At that time the handler may wait for a batch, and the client for an acknowledgement.
    writing.add_done_callback(lambda ended: acks.send(Refused()) if _failed(ended) else None)
    stream.client_waits = lambda: not writing.done() and (not batches.starving or acks.rows < stream.rows)
    # A stopped stream frees its device at once, even if its client or this thread waits. A writer that is busy with a
    # batch notices it when it calls `check`, or is cancelled on its loop after `ABORT_SECONDS`.
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
    """Yield the batches. A generator, because a writer may call `aclose` on its input."""
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
        # How many rows were acknowledged so far.
        self.rows = 0
        self._thread = threading.Thread(target=self._run, name="acks", daemon=True)

    def send(self, state: Progress | PartialUpload | Refused) -> None:
        """Acknowledge a batch, offer to resume an upload, or report that this upload has failed. Never blocks."""
        if isinstance(state, Progress):
            self.rows = state.rows
        if isinstance(state, Refused):
            self._put(REFUSED)
        else:
            self._add({"resume": asdict(state)} if isinstance(state, PartialUpload) else asdict(state))

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
                if self._writing:  # the client may be waiting for an acknowledgement
                    self._waiting.append(REFUSED)
            self._changed.notify()
        # Flight's writer must exist until the thread has left it. A client that does not read yet is still sending. So
        # this handler reads and drops what it sends: at the end of its batches the client reads the acknowledgements.
        self._thread.join(ACKS_SECONDS)
        while self._busy() and self._incoming.discard():
            pass
        with self._incoming.waiting():
            self._thread.join()

    def _busy(self) -> bool:
        """Whether a message is being written or waits to be. A thread without messages ends by itself."""
        with self._changed:
            return self._thread.is_alive() and (self._writing or bool(self._waiting))

    def _add(self, message: Summary) -> None:
        self._put(json.dumps(message, default=str).encode())

    def _put(self, message: bytes) -> None:
        with self._changed:
            if self._ended:  # the handler has left; its writer may still report progress
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
            except (pa.ArrowException, OSError):  # the client has left, which the handler's thread notices too
                with self._changed:
                    self._waiting.clear()
