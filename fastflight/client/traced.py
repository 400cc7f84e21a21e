"""What each call of a client says of itself: a request id, and the trace that it is part of.

    with traced("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"):
        client.devices()

Within the block the server's lines in its log, and those of servers behind it, have that trace, where they are told to
take it (`serve --trace`) or ask who is there. A call outside of any block has an id of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyarrow import flight

from fastflight.runtime import tracing as trace


@contextmanager
def traced(traceparent: str = "", *, tracestate: str = "", request_id: str = "") -> Iterator[str]:
    """Calls of this thread or task are made for this trace, with one request id: it is given, or made and returned."""
    made = trace.given(traceparent, tracestate=tracestate, request_id=request_id)
    with trace.within(made):
        yield made.request_id


def options(timeout: float | None = None, authorization: str = "") -> flight.FlightCallOptions:
    """Those of a call that is made now; it shows `authorization`, if that is not empty."""
    shown = [(b"authorization", authorization.encode())] if authorization else []
    return flight.FlightCallOptions(timeout=timeout, headers=[*trace.passed_on(), *shown])
