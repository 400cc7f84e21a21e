"""The headers of Flight calls: the request's id and its trace, both ways.

Every answer has `x-request-id`. The headers that a client sends are read only where the server was told to: they reach
Python by a middleware alone, and entering Python once more takes as long as a tenth of a small answer.
"""

from __future__ import annotations

from typing import ClassVar

from pyarrow import flight

from fastflight.runtime import tracing as trace
from fastflight.runtime.tracing import Trace


class Headers(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Reads what each call brings."""

    NAME: ClassVar[str] = "fastflight.headers"

    def start_call(self, info: flight.CallInfo, headers: dict[str, list[str]]) -> _Call:
        return _Call(trace.of(headers))


class _Call(flight.ServerMiddleware):  # type: ignore[misc]
    """What one call brought."""

    def __init__(self, given: Trace) -> None:
        self.trace = given


def begin(context: flight.ServerCallContext, read_by: str | None) -> None:
    """What the handler does from here on is done for its request, whose id the client is told.

    `read_by`: the middleware that has a `trace` of each call, if there is one.
    """
    given: Trace = trace.made() if read_by is None else context.get_middleware(read_by).trace
    context.add_header(trace.REQUEST_ID, given.request_id)
    trace.enter(given)
