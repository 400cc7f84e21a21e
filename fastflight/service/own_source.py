"""Own sources: `Source` makes a source that a server can serve of a user's functions, and checks them.

The functions give rows in a form that is easy to write: record batches, tables or DataFrames.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import pyarrow as pa
from pydantic import ValidationError

from fastflight.concurrency.threads import TimedThread
from fastflight.errors import RequestError, SourceError
from fastflight.service.own_calls import LateError, OwnCalls
from fastflight.service.own_rows import BatchMaker, is_rows
from fastflight.service.requests import MAX_ENDPOINTS, SourceRequest
from fastflight.service.source import (
    Acknowledge,
    Batches,
    DataSource,
    Estimate,
    Incoming,
    Part,
    Parts,
    Progress,
    Reading,
    Summary,
    Takes,
)

R = TypeVar("R", bound=SourceRequest)

# The names of types, as they are in requests, scopes and errors.
TYPE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,79}")
TYPE_EXAMPLE = 'As in class SalesRequest(fastflight.SourceRequest): type = "sales"'
FUNCTIONS = ("read", "aread", "write", "describe", "parts")
_END = object()


class Source(DataSource[R]):
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
        self._functions: dict[str, Any] = dict(zip(FUNCTIONS, (read, aread, write, describe, parts), strict=True))
        self._check_functions()
        self._calls = OwnCalls(request.type, self.name, timeout)
        if read is not None:
            self.read = self._read
        if aread is not None:
            self.aread = self._aread
        if write is not None:
            self.write = self._write

    @classmethod
    def of(cls, given: Any) -> DataSource[Any]:
        """Return `given` if it is a source already, else the source that it describes.

        That is an object with the attribute `request`, the class of the requests, and methods with the names of this
        class's arguments. A class is called without arguments to make the object.
        """
        if isinstance(given, DataSource):
            return given
        made = given() if isinstance(given, type) else given
        request = getattr(made, "request", None)
        if request is None:
            raise RequestError(
                f"{_type_name(given)} is no source",
                hint="Give a fastflight.Source, or a class with an attribute `request` and a method `read` or `aread`",
            )
        return Source(request, **{name: getattr(made, name, None) for name in (*FUNCTIONS, "timeout")})

    @property
    def runs_on_loop(self) -> bool:
        """Whether it needs an event loop."""
        return self.aread is not None

    def describe(self, request: R) -> Estimate:
        if self._functions["describe"] is None:
            return Estimate(None)
        described = self._calls.limited("describe", self._functions["describe"], request)
        if isinstance(described, pa.Schema):
            return Estimate(described)
        if isinstance(described, Estimate) and isinstance(described.schema, pa.Schema):
            return described
        raise SourceError(
            f"describe returned {_type_name(described)}",
            where=self.name,
            hint="Return a pyarrow.Schema or an Estimate",
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
        parts: list[Any] = self._calls.limited("parts", lambda: list(self._functions["parts"](request)))
        if not 0 < len(parts) <= MAX_ENDPOINTS or not all(type(part) is self.request for part in parts):
            raise SourceError(
                f"parts returned something else than 1 to {MAX_ENDPOINTS} requests of its type", where=self.name
            )
        return Parts([Part(part) for part in parts])

    def _read(self, request: R) -> Reading:
        batches = BatchMaker(self.name, self.describe(request).schema)
        # One for all steps of the answer.
        thread = TimedThread()
        result = self._calls.limited("read", self._functions["read"], request, thread=thread)
        rest = self._batches(result, batches, thread)
        try:
            first: Batches = next(rest, []) if batches.schema is None else []
            return Reading(batches.known_schema(), rest, first=first)
        except BaseException:
            rest.close()
            raise

    def _batches(self, result: Any, batches: BatchMaker, thread: TimedThread) -> Generator[Batches, None, None]:
        """Return an iterator with the batches of each item of what the user's function has returned."""
        if not is_rows(result) and not isinstance(result, Iterable):
            raise batches.refusal(result, "read")
        items = iter((result,)) if is_rows(result) else self._calls.limited("read", iter, result, thread=thread)
        return self._each(items, batches, thread)

    def _each(self, items: Iterator[Any], batches: BatchMaker, thread: TimedThread) -> Generator[Batches, None, None]:
        close = getattr(items, "close", None)
        is_running = False
        try:
            while (item := self._calls.limited("read", next, items, _END, late=close, thread=thread)) is not _END:
                yield batches.of(item)
        except LateError:
            is_running = True
            raise
        finally:
            try:
                if close is not None and not is_running:
                    self._calls.limited("read", close, thread=thread)
            finally:
                thread.close()

    async def _aread(self, request: R) -> Reading:
        described = self._functions["describe"] is not None
        known = await asyncio.to_thread(self.describe, request) if described else Estimate(None)
        batches = BatchMaker(self.name, known.schema)
        result = self._calls.unlimited("aread", self._functions["aread"], request)
        if inspect.isawaitable(result):
            result = await self._calls.awaited(result)
        if not is_rows(result) and not isinstance(result, AsyncIterator):
            raise batches.refusal(result, "aread")
        rest = self._abatches(_only(result) if is_rows(result) else result, batches)
        try:
            first: Batches = await anext(rest, []) if batches.schema is None else []
            return Reading(batches.known_schema(), rest, first=first)
        except BaseException:
            await rest.aclose()
            raise

    async def _abatches(self, items: AsyncIterator[Any], batches: BatchMaker) -> Any:
        try:
            while (item := await self._calls.awaited(anext(items, _END))) is not _END:
                yield batches.of(item)
        finally:
            aclose = getattr(items, "aclose", None)
            if aclose is not None:
                await self._calls.awaited(aclose())

    def _write(self, request: R, schema: pa.Schema, batches: Incoming, acknowledge: Acknowledge) -> Summary:
        rows = _Received(batches, acknowledge)
        reader = pa.RecordBatchReader.from_batches(schema, rows)
        summary = self._calls.unlimited("write", self._functions["write"], request, reader)
        if summary is not None and not isinstance(summary, Mapping):
            raise SourceError(f"write returned {_type_name(summary)}", where=self.name, hint="Return a dict or nothing")
        if not rows.ended:
            raise SourceError(
                "write returned before it had all rows", where=self.name, hint="Read the rows to their end"
            )
        return {**(summary or {}), "rows": rows.rows, "bytes": rows.bytes}

    def _check_functions(self) -> None:
        if self.timeout is not None and not (isinstance(self.timeout, int | float) and self.timeout > 0):
            raise RequestError(f"timeout is {self.timeout!r}", where=self.name, hint="Give seconds above 0, or None")
        for name, function in self._functions.items():
            if function is not None and not callable(function):
                raise RequestError(f"{name} is no function but {_type_name(function)}", where=self.name)
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


def _check_request(request: Any) -> None:
    if not isinstance(request, type) or not issubclass(request, SourceRequest) or request is SourceRequest:
        raise RequestError(
            f"{_type_name(request)} is no class derived from fastflight.SourceRequest",
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


def _type_name(thing: Any) -> str:
    """Return a short name of a class or of an object's class, for error messages."""
    return thing.__name__ if isinstance(thing, type) else type(thing).__name__
