"""What a client sends, passed on to a worker: the rows of a write, and the one side of an exchange.

Rows go on as they come, and the worker's acknowledgements come back. When either side fails, the other is told so: a
client whose rows break off leaves the old file on the device, and one that waits for word of its last batch hears that
the worker has refused it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import threading
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from fastflight.cli.workers.pool import Worker
from fastflight.cli.workers.relay import AsyncBatches, Item, Relay, Relayed
from fastflight.client.connection import Connection
from fastflight.client.failure import typed_errors
from fastflight.client.rows import Rows
from fastflight.client.upload import Upload
from fastflight.concurrency import off_loop
from fastflight.concurrency.inbox import Inbox
from fastflight.errors import FastFlightError, Stopped
from fastflight.service.requests import Request
from fastflight.service.source import Acknowledge, AsyncIncoming, Incoming, Kept, Progress, Refused, Summary
from fastflight.service.weight import weight

# What waits on the way to the worker, which has as much again.
HANDIN_BYTES = 1024 * 1024
# What a worker gets to clean up after an upload that broke off, beyond its own such time.
SETTLE_SECONDS = 10.0


def write(
    worker: Worker,
    where: str,
    request: Request,
    schema: pa.Schema,
    batches: Iterator[pa.RecordBatch],
    acknowledge: Acknowledge,
) -> Summary:
    """Write `batches` by way of the worker, in this thread."""
    with worker.connected(where) as connection:
        return _Passing(connection, request, schema, batches, acknowledge).run()


async def awrite(
    worker: Worker,
    where: str,
    request: Request,
    schema: pa.Schema,
    batches: AsyncIterator[pa.RecordBatch],
    acknowledge: Acknowledge,
) -> Summary:
    """The same for a coroutine."""
    handed: Inbox[pa.RecordBatch] = Inbox(HANDIN_BYTES, lambda: True, worker.governor)
    ended: concurrent.futures.Future[Summary] = concurrent.futures.Future()

    def run() -> None:
        try:
            ended.set_result(write(worker, where, request, schema, handed, acknowledge))
        except BaseException as error:
            ended.set_exception(error)
        finally:
            handed.close()

    threading.Thread(target=contextvars.copy_context().run, args=(run,), name="forward-write", daemon=True).start()
    feeding = asyncio.ensure_future(feed(batches, handed))
    writing = asyncio.wrap_future(ended)
    # One that nobody waits for any more is not news.
    writing.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    try:
        await asyncio.wait([feeding, writing], return_when=asyncio.FIRST_COMPLETED)  # type: ignore[type-var]
        if feeding.done():
            feeding.result()
        return await asyncio.shield(writing)
    except BaseException as error:
        broken = error if isinstance(error, FastFlightError) else Stopped("the upload broke off")
        handed.fail(broken, at_once=True)
        if not writing.done():
            await asyncio.wait({writing}, timeout=SETTLE_SECONDS)
        # It has failed because the rows broke off, or they did because it has failed.
        if isinstance(error, Exception) and writing.done() and (told := writing.exception()) is not None:
            raise told from error
        raise
    finally:
        feeding.cancel()
        await asyncio.wait({feeding})


async def feed(batches: AsyncIterable[pa.RecordBatch], handed: Inbox[pa.RecordBatch]) -> None:
    """Hand all `batches` in; their error is raised here and there."""
    try:
        async for batch in batches:
            try:
                await off_loop(handed.put, batch, weight(batch))
            except Stopped:
                return  # the writer has ended, and says why
    except asyncio.CancelledError:
        handed.fail(Stopped("the upload broke off"))
        raise
    except Exception as error:
        handed.fail(error)
        raise
    handed.finish()


class _Passing:
    """A write, the client's rows in it."""

    def __init__(
        self,
        connection: Connection,
        request: Request,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        acknowledge: Acknowledge,
    ) -> None:
        self._batches = batches
        self._acknowledge = acknowledge
        self.upload: Upload = connection.upload(request, Rows(schema, self._rows()), heard=self._heard)

    def run(self) -> Summary:
        """Carry it out. It may be ended where all rows are on their way: most of them wait for the device then."""
        batches = self._batches if isinstance(self._batches, Inbox) else None
        if batches is not None:
            batches.when_dropped(self.upload.give_up)
        try:
            self.upload.run()
        except Stopped:
            if batches is not None and batches.dropped is not None:
                raise batches.dropped from None
            raise
        finally:
            if batches is not None:
                batches.when_dropped(None)
        return {key: value for key, value in self.upload.summary.items() if key != "done"}

    def _rows(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._batches
        except FastFlightError:
            if not self.upload.is_over:  # else the client ended its side because of the worker's error: that is told
                raise

    def _heard(self, told: Mapping[str, Any]) -> None:
        if "refused" in told:
            self._acknowledge(Refused())
        elif "resume" in told:
            self._acknowledge(Kept(**told["resume"]))
        elif "done" not in told:
            self._acknowledge(Progress(int(told["rows"]), int(told["bytes"])))


class Exchange:
    """An exchange with a worker, for the thread that iterates its answer. Another one sends what comes in `batches`.

    Made once the worker has begun to answer. Close it at the end.
    """

    def __init__(
        self, worker: Worker, where: str, request: Request, schema: pa.Schema, batches: Inbox[pa.RecordBatch] | Incoming
    ) -> None:
        self._batches = batches
        self._lock = threading.Lock()
        self._done = False
        self._failure: FastFlightError | None = None
        with worker.connected(where) as connection:
            self._location = connection.location
            self._writer, reader = connection.exchange(request)
            try:
                with typed_errors(self._location):
                    self._writer.begin(schema)
                self._relay = Relay(reader, worker, where, told=self._end)
            except FastFlightError as error:
                # What ended the call is told by its end; a writer that failed knows less.
                raise self._refusal(error) from error
        self._sending = threading.Thread(target=self._send, name="forward-input", daemon=True)
        self._sending.start()

    @property
    def schema(self) -> pa.Schema:
        return self._relay.schema

    def __iter__(self) -> Iterator[Item]:
        try:
            yield from self._relay
        except FastFlightError as error:
            raise self._failure or error from error

    def summary(self) -> Summary:
        return self._relay.summary()

    def cancel(self) -> None:
        """Nobody wants more of it. From any thread."""
        self._relay.cancel()

    def close(self) -> None:
        """The answer has ended, or is not wanted; nothing more is taken of what is sent."""
        self.cancel()
        self._batches.close()
        self._end()
        self._sending.join()
        with contextlib.suppress(pa.ArrowException, OSError):  # the call was cancelled, which is what it says
            self._writer.close()

    def _send(self) -> None:
        try:
            for batch in self._batches:
                with self._lock:
                    if self._done:
                        return
                    with typed_errors(self._location):
                        self._writer.write_batch(batch)
        except FastFlightError as error:
            # A write that failed is told by the answer; a client's rows that did not fit are told there, too.
            if error.where != self._location:
                self._failure = error
            self.cancel()
        else:
            self._end()

    def _end(self) -> None:
        with self._lock:
            if not self._done:
                self._done = True
                with contextlib.suppress(pa.ArrowException, OSError):  # it has ended, as reading says
                    self._writer.done_writing()

    def _refusal(self, error: FastFlightError) -> FastFlightError:
        self._end()
        try:
            with typed_errors(self._location):
                self._writer.close()
        except FastFlightError as told:
            return told
        return error


class AsyncExchange(AsyncIterator[Item]):
    """The same for a coroutine: what comes in `batches` is taken on the loop, the rest is done in threads."""

    def __init__(self, worker: Worker, where: str, request: Request, schema: pa.Schema, batches: AsyncIncoming) -> None:
        handed: Inbox[pa.RecordBatch] = Inbox(HANDIN_BYTES, lambda: True, worker.governor)
        self._batches = batches
        self._handed = handed
        self._feeding = asyncio.ensure_future(feed(batches, handed))
        self._feeding.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        self._answer = AsyncBatches(lambda: Exchange(worker, where, request, schema, handed), worker.governor)

    async def opened(self) -> Relayed:
        """The answer, once the worker has begun it, or the worker's error."""
        try:
            return await self._answer.opened()
        except BaseException:
            await self.aclose()
            raise

    async def __anext__(self) -> Item:
        return await anext(self._answer)

    async def aclose(self) -> None:
        self._feeding.cancel()
        await self._answer.aclose()
        self._handed.close()  # as an exchange does that was made; else what is handed in would wait for room for ever
        await self._batches.aclose()
