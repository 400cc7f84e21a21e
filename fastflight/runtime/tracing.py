"""Request ids and traces, which connect the log lines of one request, on this server and on others.

A `Trace` has the id of a request and, if the client sent one, its trace context (W3C Trace Context, level 1). An edge
makes a trace from the headers of each request (`from_headers`) and runs the request `within` it. `current` returns the
trace of the calling code: it follows a request through handlers, loops, tasks and the threads that they start with
their context. `Trace.headers` passes the trace on to the next server. `with_ids` adds the ids to each line of the log.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from fastflight.errors import RequestError

REQUEST_ID, TRACEPARENT, TRACESTATE = "x-request-id", "traceparent", "tracestate"
NAMES = frozenset((REQUEST_ID, TRACEPARENT, TRACESTATE))
# Tracers and proxies send UUIDs or other ids of at most 64 characters. The id is in each line of the log, so it has no
# character that breaks a line or could be read as another field.
REQUEST_ID_FORM = re.compile(r"[A-Za-z0-9._:@+/=-]{1,64}")
# 3.2.2: version, trace, parent, flags. A later version may have more after another dash.
TRACEPARENT_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
# 3.3.1.5: at least this much must be passed on. A longer state is dropped, not cut.
MAX_STATE_CHARACTERS = 512
STATE_FORM = re.compile(r"[\x20-\x7e\t]*")
# 3.2.2.5: only this flag is defined; the others must be sent as 0.
SAMPLED = 0x01


class Trace:
    """The request id and the trace context of one request.

    `trace_id`, `parent_id` (the client's span) and `span_id` (this request's own span) are empty if the client sent no
    trace context. `state` is the `tracestate` header, which is passed on unchanged.
    """

    # Defaults in the class, which saves time: a trace is made for every small answer, and most never change them.
    trace_id = parent_id = span_id = state = ""
    flags = 0

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id

    def fields(self) -> dict[str, str]:
        """Return the fields for a line of the log."""
        if not self.trace_id:
            return {"request_id": self.request_id}
        return {
            "request_id": self.request_id,
            "trace_id": self.trace_id,
            "span_id": self.span_id,
            "parent_id": self.parent_id,
        }

    def headers(self) -> list[tuple[str, str]]:
        """Return the headers for requests to other servers on behalf of this request."""
        headers = [(REQUEST_ID, self.request_id)]
        if self.trace_id:
            headers.append((TRACEPARENT, f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}"))
            if self.state:
                headers.append((TRACESTATE, self.state))
        return headers


_CURRENT: ContextVar[Trace | None] = ContextVar("fastflight_trace", default=None)


def from_headers(headers: Mapping[str, list[str]]) -> Trace:
    """Return the trace of a request with these headers (lower-case names, each with the list of its values).

    Malformed headers are ignored: a request without a good id gets a new one, and no trace context is made up.
    """
    ids = headers.get(REQUEST_ID, [])
    well_formed = len(ids) == 1 and REQUEST_ID_FORM.fullmatch(ids[0])
    request_id = ids[0] if well_formed else _random()
    parents = headers.get(TRACEPARENT, [])
    parent = _parent(parents[0]) if len(parents) == 1 else None
    trace = Trace(request_id)
    if parent is not None:
        trace.trace_id, trace.parent_id, trace.flags = parent
        trace.span_id = _random()
        state = ",".join(headers.get(TRACESTATE, []))
        if len(state) <= MAX_STATE_CHARACTERS and STATE_FORM.fullmatch(state):
            trace.state = state
    return trace


def client_trace(traceparent: str = "", *, tracestate: str = "", request_id: str = "") -> Trace:
    """Return the trace for requests that a program sends to servers. The span in `traceparent` is passed on unchanged.

    Raise `RequestError` for malformed arguments.
    """
    for name, value, form in (
        (REQUEST_ID, request_id, REQUEST_ID_FORM),
        (TRACESTATE, tracestate, STATE_FORM),
    ):
        if value and not form.fullmatch(value):
            raise RequestError("not one that is passed on", where=name, hint=f"Its form is {form.pattern}")
    trace = Trace(request_id or _random())
    if traceparent:
        parent = _parent(traceparent)
        if parent is None:
            raise RequestError(
                "not a traceparent", where=TRACEPARENT, hint="As in 00-<32 digits>-<16 digits>-01, in small letters"
            )
        trace.trace_id, trace.span_id, trace.flags = parent
        trace.state = tracestate if len(tracestate) <= MAX_STATE_CHARACTERS else ""
    return trace


def new_trace() -> Trace:
    """Return a trace with a new request id, for a request whose headers are not read."""
    return Trace(_random())


def current() -> Trace | None:
    """Return the trace of the request on whose behalf the caller runs; None outside of a request."""
    return _CURRENT.get()


@contextmanager
def within(trace: Trace | None) -> Iterator[None]:
    """Make `trace` the current one in the block."""
    token = _CURRENT.set(trace)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def enter(trace: Trace) -> None:
    """Make `trace` the current one in this context from now on, for an edge that has a context for each request."""
    _CURRENT.set(trace)


def outgoing_headers() -> list[tuple[bytes, bytes]]:
    """Return the headers for a request to a server: those of the current trace, or of a new one."""
    return [(name.encode(), value.encode()) for name, value in (_CURRENT.get() or new_trace()).headers()]


def with_ids(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A processor for structlog: adds the ids of the current request to a line that does not have them already."""
    trace = _CURRENT.get()
    if trace is not None:
        for name, value in trace.fields().items():
            event.setdefault(name, value)
    return event


def _parent(text: str) -> tuple[str, str, int] | None:
    """Return trace, parent and flags of a `traceparent`; None if it is malformed."""
    match = TRACEPARENT_FORM.fullmatch(text)
    if match is None:
        return None
    version, trace_id, parent_id, flags, more = match.groups()
    if version == "ff" or (version == "00" and more is not None) or not int(trace_id, 16) or not int(parent_id, 16):
        return None
    return trace_id, parent_id, int(flags, 16) & SAMPLED


def _random() -> str:
    """Return 16 random hexadecimal digits. They need not be hard to guess, only quick to make."""
    return f"{random.getrandbits(64):016x}"
