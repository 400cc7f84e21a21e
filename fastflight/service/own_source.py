"""Own sources: `Source` checks a user's functions, of which `OwnSource` makes a source that a server can serve."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

import pyarrow as pa

from fastflight.errors import RequestError
from fastflight.service.own_functions import OwnSource, type_name
from fastflight.service.requests import SourceRequest
from fastflight.service.source import DataSource, Estimate

R = TypeVar("R", bound=SourceRequest)

# The names of types, as they are in requests, scopes and errors.
TYPE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,79}")
TYPE_EXAMPLE = 'As in class SalesRequest(fastflight.SourceRequest): type = "sales"'
FUNCTIONS = ("read", "aread", "write", "describe", "parts")


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
                f"{type_name(given)} is no source",
                hint="Give a fastflight.Source, or a class with an attribute `request` and a method `read` or `aread`",
            )
        return Source(request, **{name: getattr(made, name, None) for name in (*FUNCTIONS, "timeout")})

    @property
    def runs_on_loop(self) -> bool:
        """Whether it needs an event loop."""
        return self._functions["aread"] is not None

    def functions(self) -> DataSource[R]:
        """Return what the catalog of a server takes."""
        return OwnSource(self.request, self.name, self.timeout, self._functions)

    def _check_functions(self) -> None:
        if self.timeout is not None and not (isinstance(self.timeout, int | float) and self.timeout > 0):
            raise RequestError(f"timeout is {self.timeout!r}", where=self.name, hint="Give seconds above 0, or None")
        for name, function in self._functions.items():
            if function is not None and not callable(function):
                raise RequestError(f"{name} is no function but {type_name(function)}", where=self.name)
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
            f"{type_name(request)} is no class derived from fastflight.SourceRequest",
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
