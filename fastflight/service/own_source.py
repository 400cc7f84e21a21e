"""Own sources: `Source` makes a function of the user's into one that a server can serve.

The user's functions give rows in a form that is easy to write: record batches, tables or DataFrames. `Source.functions`
adapts them to what the server's edges use (`service.source.SourceFunctions`). Whatever the user's code raises becomes a
`SourceError` with the name of the source, whose details are in the log; errors of `fastflight.errors` are passed on as
they are, so that a source can refuse a request with `RequestError`.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Generic, TypeVar

import pyarrow as pa
from pydantic import ValidationError

from fastflight.concurrency.timed import Overdue, TimedThread, call_within
from fastflight.errors import FastFlightError, RequestError, SourceError
from fastflight.lazy import Logger
from fastflight.service.own_rows import BatchMaker, is_rows
from fastflight.service.requests import MAX_ENDPOINTS, SourceRequest
from fastflight.service.source import (
    Acknowledge,
    AsyncReading,
    Estimate,
    Lot,
    Part,
    Parts,
    Progress,
    Reading,
    Sent,
    SourceFunctions,
    Summary,
    Takes,
)

R = TypeVar("R", bound=SourceRequest)
T = TypeVar("T")

log = Logger(__name__)

# The names of types, as they are in requests, scopes and errors.
TYPE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,79}")
TYPE_EXAMPLE = 'As in class SalesRequest(fastflight.SourceRequest): type = "sales"'
FUNCTIONS = ("read", "aread", "write", "describe", "parts")
# Threads of one source whose function has not returned in time. Each may hold memory, and nothing can end it.
MAX_OVERDUE = 16
_END = object()


class Source(Generic[R]):
    """A data service: the class of its requests, and the functions that serve them.

    - `read(request)` returns rows, or yields them in parts. It runs in a thread.
    - `aread(request)` is an async generator of rows, or a coroutine that returns them. It runs on an event loop that
      this source has for itself.
    - `write(request, rows)` takes the rows that a client sends, a `pyarrow.RecordBatchReader`. It may return a dict,
      which the client gets. It runs in a thread. When it asks for the next batch, the client is told that the last one
      is stored.
    - `describe(request)` returns the schema of the rows, or an `Estimate` with the schema and the number of rows. With
      it, an answer can be without rows, and begins before its first row.
    - `parts(request)` returns requests of the same type that can be read in parallel and together have all rows.

    Rows are a record batch, a table, a DataFrame of pandas, or anything with `__arrow_c_stream__`, as a DataFrame of
    Polars. All of an answer have the same columns. `read`, `aread` or `write` is needed. With both `read` and `aread`,
    the key `mode` of the request decides.

    `timeout` is the seconds that each step may take: to begin an answer, and then to give its next rows. After that the
    client gets a `SourceError`. Without it, a client waits for as long as the source takes. Each step of a function
    other than `aread` then has a thread of its own, which ends when the function returns. `write` has no limit,
    because it waits for its client.

    Raise an error of `fastflight.errors` to tell the client something. Of all other errors the client gets the type,
    and the server's log has the traceback. Raises `RequestError` if something is missing or wrong.
    """

    def __init__(
        self,
        request: type[R],
        *,
        read: Callable[[R], Any] | None = None,
        aread: Callable[[R], Any] | None = None,
        write: Callable[[R, pa.RecordBatchReader], Mapping[str, Any] | None] | None = None,
        describe: Callable[[R], pa.Schema | Estimate] | None = None,
        parts: Callable[[R], Iterable[R]] | None = None,
        timeout: float | None = None,
    ) -> None:
        _check_request(request)
        self.request = request
        self.name: str = f"source {request.type}"
        self.timeout = timeout
        self._overdue: set[threading.Thread] = set()
        self._functions: dict[str, Any] = dict(zip(FUNCTIONS, (read, aread, write, describe, parts), strict=True))
        self._check_functions()

    @classmethod
    def of(cls, given: Any) -> Source[Any]:
        """Return `given` if it is a `Source`, else the source that it describes.

        That is an object with the attribute `request`, the class of the requests, and methods with the names of this
        class's arguments. A class is called without arguments to make the object.
        """
        if isinstance(given, Source):
            return given
        made = given() if isinstance(given, type) else given
        request = getattr(made, "request", None)
        if request is None:
            raise RequestError(
                f"{_named(given)} is no source",
                hint="Give a fastflight.Source, or a class with an attribute `request` and a method `read` or `aread`",
            )
        return Source(request, **{name: getattr(made, name, None) for name in (*FUNCTIONS, "timeout")})

    @property
    def runs_on_loop(self) -> bool:
        """Whether it needs an event loop."""
        return self._functions["aread"] is not None

    def functions(self) -> SourceFunctions[R]:
        """Return the functions for the catalog of a server."""
        has = {name: function is not None for name, function in self._functions.items()}
        return SourceFunctions(
            self.request,
            read=self._read if has["read"] else None,
            aread=self._aread if has["aread"] else None,
            write=self._write if has["write"] else None,
            describe=self._describe if has["describe"] else None,
            requests=self._requests,
            parts=self._parts if has["parts"] else None,
        )

    def _check_functions(self) -> None:
        if self.timeout is not None and not (isinstance(self.timeout, int | float) and self.timeout > 0):
            raise RequestError(f"timeout is {self.timeout!r}", where=self.name, hint="Give seconds above 0, or None")
        for name, function in self._functions.items():
            if function is not None and not callable(function):
                raise RequestError(f"{name} is no function but {_named(function)}", where=self.name)
            is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
            if is_async and name != "aread":
                hint = "Give it as aread" if name == "read" else "Write it without async"
                raise RequestError(f"{name} is async", where=self.name, hint=hint)
        if inspect.isgeneratorfunction(self._functions["aread"]):
            raise RequestError("aread is not async", where=self.name, hint="Give it as read, or write async def")
        if all(self._functions[name] is None for name in ("read", "aread", "write")):
            raise RequestError(
                "it has none of read, aread and write", where=self.name, hint="Write at least one of these functions"
            )

    def _read(self, request: R) -> Reading:
        batches = BatchMaker(self.name, self._schema(request))
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
        batches = BatchMaker(self.name, await asyncio.to_thread(self._schema, request) if self._describes else None)
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

    def _write(self, request: R, schema: pa.Schema, batches: Sent, acknowledge: Acknowledge) -> Summary:
        rows = _Received(batches, acknowledge)
        reader = pa.RecordBatchReader.from_batches(schema, rows)
        summary = self._guard("write", self._functions["write"], request, reader)
        if summary is not None and not isinstance(summary, Mapping):
            raise SourceError(f"write returned {_named(summary)}", where=self.name, hint="Return a dict or nothing")
        if not rows.ended:
            raise SourceError(
                "write returned before it had all rows", where=self.name, hint="Read the rows to their end"
            )
        return {**(summary or {}), "rows": rows.rows, "bytes": rows.bytes}

    @property
    def _describes(self) -> bool:
        return self._functions["describe"] is not None

    def _schema(self, request: R) -> pa.Schema | None:
        return self._describe(request).schema if self._describes else None

    def _describe(self, request: R) -> Estimate:
        described = self._within("describe", self._functions["describe"], request)
        if isinstance(described, pa.Schema):
            return Estimate(described)
        if isinstance(described, Estimate) and isinstance(described.schema, pa.Schema):
            return described
        raise SourceError(
            f"describe returned {_named(described)}", where=self.name, hint="Return a pyarrow.Schema or an Estimate"
        )

    def _requests(self, takes: Takes) -> Iterator[tuple[R, Estimate]]:
        """List the request without keys, if there is one. Listing does not run the user's code."""
        try:
            yield self.request(), Estimate(None)
        except ValidationError:
            return

    def _parts(self, request: R, known: Estimate) -> Parts[R]:
        parts: list[Any] = self._within("parts", lambda: list(self._functions["parts"](request)))
        if not 0 < len(parts) <= MAX_ENDPOINTS or not all(type(part) is self.request for part in parts):
            raise SourceError(
                f"parts returned something else than 1 to {MAX_ENDPOINTS} requests of its type", where=self.name
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
        if self.timeout is None:
            return self._guard(name, function, *args)
        self._check_overdue()
        try:
            if thread is None:
                return self._guard(name, partial(call_within, self.timeout, function, *args))
            return self._guard(name, partial(thread.call, self.timeout, function, *args, late=late))
        except Overdue as overdue:
            self._overdue.add(overdue.thread)
            raise self._late(name) from None

    async def _await(self, step: Awaitable[T]) -> T:
        """Await a step of `aread`."""
        try:
            async with asyncio.timeout(self.timeout) as limit:
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
                where=self.name,
                hint="Try again when they have, or restart the server",
            )

    def _late(self, name: str) -> SourceError:
        log.error("source is late", source=self.request.type, function=name, timeout=self.timeout)
        return _LateError(
            f"{name} has given nothing for {self.timeout:g} s", where=self.name, hint="Ask for less, or try again later"
        )

    def _failure(self, name: str, error: BaseException) -> BaseException:
        """Return what to raise for an exception of the user's function `name`; log those that the client cannot see."""
        if isinstance(error, FastFlightError | Overdue):
            return error
        if isinstance(error, asyncio.CancelledError) and _is_cancelled():
            return error
        log.error("source failed", source=self.request.type, function=name, exc_info=error)
        return SourceError(f"{name} raised {type(error).__name__}", where=self.name, hint="See the server's log")


class _LateError(SourceError):
    """A function has taken longer than the source may. It may still run."""


class _Received(Iterator[pa.RecordBatch]):
    """The batches of a client. Each is acknowledged when the next one is taken."""

    def __init__(self, batches: Sent, acknowledge: Acknowledge) -> None:
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


def _is_cancelled() -> bool:
    """Whether the running task was cancelled. Else its code has raised `CancelledError` by itself."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop runs in this thread
        return False
    return task is not None and task.cancelling() > 0


def _check_request(request: Any) -> None:
    if not isinstance(request, type) or not issubclass(request, SourceRequest) or request is SourceRequest:
        raise RequestError(
            f"{_named(request)} is no class derived from fastflight.SourceRequest",
            where="a source's request",
            hint=TYPE_EXAMPLE,
        )
    name = getattr(request, "type", None)
    if name is None or "type" in request.model_fields:
        raise RequestError("it has no type", where=request.__name__, hint=TYPE_EXAMPLE)
    if not isinstance(name, str) or not TYPE_NAME.fullmatch(name):
        raise RequestError(
            f"{name!r} is no name for a type",
            where=request.__name__,
            hint="Use up to 80 letters, digits, _ . -, and begin with a letter",
        )


def _named(thing: Any) -> str:
    """Return a short name of a class or of an object's class, for error messages."""
    return thing.__name__ if isinstance(thing, type) else type(thing).__name__
