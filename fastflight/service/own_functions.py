"""Serves the functions of a user's own source.

They give rows in a form that is easy to write: record batches, tables or DataFrames. `OwnSource` adapts them to what
the server's edges use. Whatever the user's code raises becomes a `SourceError` with the name of the source, whose
details are in the log; errors of `fastflight.errors` are passed on as they are, so that a source can refuse a request
with `RequestError`.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
from pydantic import ValidationError

from fastflight.concurrency.threads import Overdue, TimedThread, call_within
from fastflight.errors import FastFlightError, SourceError
from fastflight.lazy import Logger
from fastflight.service.own_rows import BatchMaker, is_rows
from fastflight.service.requests import MAX_ENDPOINTS, SourceRequest
from fastflight.service.source import (
    Acknowledge,
    AsyncReading,
    DataSource,
    Estimate,
    Incoming,
    Lot,
    Part,
    Parts,
    Progress,
    Reading,
    Summary,
    Takes,
)

R = TypeVar("R", bound=SourceRequest)
T = TypeVar("T")

log = Logger(__name__)

# Threads of one source whose function has not returned in time. Each may hold memory, and nothing can end it.
MAX_OVERDUE = 16
_END = object()


class OwnSource(DataSource[R]):
    """The source that consists of a user's `functions`; those that it does not have are None."""

    def __init__(
        self, request: type[R], name: str, timeout: float | None, functions: Mapping[str, Callable[..., Any] | None]
    ) -> None:
        """`name` is what errors call the source. Each step of `functions` may take `timeout` seconds."""
        self.request = request
        self._name = name
        self._timeout = timeout
        self._functions: dict[str, Any] = dict(functions)
        self._overdue: set[threading.Thread] = set()
        if functions["read"] is not None:
            self.read = self._read
        if functions["aread"] is not None:
            self.aread = self._aread
        if functions["write"] is not None:
            self.write = self._write

    def _read(self, request: R) -> Reading:
        batches = BatchMaker(self._name, self._schema(request))
        # One for all steps of the answer.
        thread = TimedThread()
        lots = self._lots(self._within("read", self._functions["read"], request, thread=thread), batches, thread)
        try:
            first: Lot = next(lots, []) if batches.schema is None else []
            return Reading(batches.known_schema(), lots, first=first)
        except BaseException:
            lots.close()
            raise

    def _lots(self, given: Any, batches: BatchMaker, thread: TimedThread) -> Any:
        """Yield a lot for each item that the user's function gives."""
        if not is_rows(given) and not isinstance(given, Iterable):
            raise batches.refusal(given, "read")
        items = iter((given,)) if is_rows(given) else self._within("read", iter, given, thread=thread)
        return self._guarded_lots(items, batches, thread)

    def _guarded_lots(self, items: Iterator[Any], batches: BatchMaker, thread: TimedThread) -> Iterator[Lot]:
        close = getattr(items, "close", None)
        is_running = False
        try:
            while (item := self._within("read", next, items, _END, late=close, thread=thread)) is not _END:
                yield batches.lot(item)
        except _LateError:
            is_running = True
            raise
        finally:
            try:
                if close is not None and not is_running:
                    self._within("read", close, thread=thread)
            finally:
                thread.close()

    async def _aread(self, request: R) -> AsyncReading:
        batches = BatchMaker(self._name, await asyncio.to_thread(self._schema, request) if self._describes else None)
        given = self._guard("aread", self._functions["aread"], request)
        if inspect.isawaitable(given):
            given = await self._await(given)
        if not is_rows(given) and not isinstance(given, AsyncIterator):
            raise batches.refusal(given, "aread")
        lots = self._alots(_only(given) if is_rows(given) else given, batches)
        try:
            first: Lot = await anext(lots, []) if batches.schema is None else []
            return AsyncReading(batches.known_schema(), lots, first=first)
        except BaseException:
            await lots.aclose()
            raise

    async def _alots(self, items: AsyncIterator[Any], batches: BatchMaker) -> Any:
        try:
            while (item := await self._await(anext(items, _END))) is not _END:
                yield batches.lot(item)
        finally:
            aclose = getattr(items, "aclose", None)
            if aclose is not None:
                await self._await(aclose())

    def _write(self, request: R, schema: pa.Schema, batches: Incoming, acknowledge: Acknowledge) -> Summary:
        rows = _Received(batches, acknowledge)
        reader = pa.RecordBatchReader.from_batches(schema, rows)
        summary = self._guard("write", self._functions["write"], request, reader)
        if summary is not None and not isinstance(summary, Mapping):
            raise SourceError(f"write returned {type_name(summary)}", where=self._name, hint="Return a dict or nothing")
        if not rows.ended:
            raise SourceError(
                "write returned before it had all rows", where=self._name, hint="Read the rows to their end"
            )
        return {**(summary or {}), "rows": rows.rows, "bytes": rows.bytes}

    @property
    def _describes(self) -> bool:
        return self._functions["describe"] is not None

    def _schema(self, request: R) -> pa.Schema | None:
        return self.describe(request).schema

    def describe(self, request: R) -> Estimate:
        if not self._describes:
            return Estimate(None)
        described = self._within("describe", self._functions["describe"], request)
        if isinstance(described, pa.Schema):
            return Estimate(described)
        if isinstance(described, Estimate) and isinstance(described.schema, pa.Schema):
            return described
        raise SourceError(
            f"describe returned {type_name(described)}", where=self._name, hint="Return a pyarrow.Schema or an Estimate"
        )

    def requests(self, takes: Takes) -> Iterator[tuple[R, Estimate]]:
        """List the request without keys, if there is one. Listing does not run the user's code."""
        try:
            yield self.request(), Estimate(None)
        except ValidationError:
            return

    def parts(self, request: R, known: Estimate) -> Parts[R]:
        if self._functions["parts"] is None:
            return super().parts(request, known)
        parts: list[Any] = self._within("parts", lambda: list(self._functions["parts"](request)))
        if not 0 < len(parts) <= MAX_ENDPOINTS or not all(type(part) is self.request for part in parts):
            raise SourceError(
                f"parts returned something else than 1 to {MAX_ENDPOINTS} requests of its type", where=self._name
            )
        return Parts([Part(part) for part in parts])

    def _guard(self, name: str, function: Callable[..., T], *args: Any) -> T:
        """Call a function of the user."""
        try:
            return function(*args)
        except BaseException as error:
            raise self._failure(name, error) from None

    def _within(
        self,
        name: str,
        function: Callable[..., T],
        *args: Any,
        late: Callable[[], object] | None = None,
        thread: TimedThread | None = None,
    ) -> T:
        """Call a function of the user, in `thread` if the source has a time limit.

        If it is late, raise `_LateError`, and call `late` when it has returned.
        """
        if self._timeout is None:
            return self._guard(name, function, *args)
        self._check_overdue()
        try:
            if thread is None:
                return self._guard(name, partial(call_within, self._timeout, function, *args))
            return self._guard(name, partial(thread.call, self._timeout, function, *args, late=late))
        except Overdue as overdue:
            self._overdue.add(overdue.thread)
            raise self._late(name) from None

    async def _await(self, step: Awaitable[T]) -> T:
        """Await a step of `aread`."""
        try:
            async with asyncio.timeout(self._timeout) as limit:
                return await step
        except BaseException as error:
            raise self._late("aread") if limit.expired() else self._failure("aread", error) from None

    def _check_overdue(self) -> None:
        """Raise `SourceError` if so many threads have not returned that no more may be started."""
        for thread in tuple(self._overdue):
            if not thread.is_alive():
                self._overdue.discard(thread)
        if len(self._overdue) >= MAX_OVERDUE:
            raise SourceError(
                f"{MAX_OVERDUE} of its earlier calls have not returned",
                where=self._name,
                hint="Try again when they have, or restart the server",
            )

    def _late(self, name: str) -> SourceError:
        log.error("source is late", source=self.request.type, function=name, timeout=self._timeout)
        return _LateError(
            f"{name} has given nothing for {self._timeout:g} s",
            where=self._name,
            hint="Ask for less, or try again later",
        )

    def _failure(self, name: str, error: BaseException) -> BaseException:
        """Return the error that the client gets for an exception of the user's function `name`.

        Errors of fastflight are returned as they are. Of others the client learns the type, and the log the traceback.
        """
        if isinstance(error, FastFlightError | Overdue):
            return error
        if isinstance(error, asyncio.CancelledError) and _is_cancelled():
            return error
        log.error("source failed", source=self.request.type, function=name, exc_info=error)
        return SourceError(f"{name} raised {type(error).__name__}", where=self._name, hint="See the server's log")


class _LateError(SourceError):
    """A function has taken longer than the source may. It may still run."""


class _Received(Iterator[pa.RecordBatch]):
    """The batches of a client. Each is acknowledged when the next one is taken."""

    def __init__(self, batches: Incoming, acknowledge: Acknowledge) -> None:
        self._batches = batches
        self._acknowledge = acknowledge
        self.rows = self.bytes = 0
        self.ended = False

    def __next__(self) -> pa.RecordBatch:
        if self.rows:
            self._acknowledge(Progress(self.rows, self.bytes))
        try:
            batch = next(self._batches)
        except StopIteration:
            self.ended = True
            raise
        self.rows += batch.num_rows
        self.bytes += batch.nbytes
        return batch


async def _only(item: Any) -> AsyncIterator[Any]:
    yield item


def type_name(thing: Any) -> str:
    """Return a short name of a class or of an object's class, for error messages."""
    return thing.__name__ if isinstance(thing, type) else type(thing).__name__


def _is_cancelled() -> bool:
    """Whether the running task was cancelled. Else its code has raised `CancelledError` by itself."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop runs in this thread
        return False
    return task is not None and task.cancelling() > 0
