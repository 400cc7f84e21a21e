"""What ties a request's lines in the log together, here and wherever else it passes.

A `Trace` is the request's id and, where its client is part of one, the trace (W3C Trace Context, level 1). An edge
makes one `of` the headers of each request and runs the request `within` it; `current` is that of whoever calls, on a
handler's thread and on a loop, in its tasks and in what they hand to threads. `Trace.headers` pass it on to the next
server, and `with_ids` has each line of the log say whose it is.
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
# Those of tracers and proxies are UUIDs or shorter than 64. It stands in each line of the log: nothing that would break
# one, or read as another field.
REQUEST_ID_FORM = re.compile(r"[A-Za-z0-9._:@+/=-]{1,64}")
# 3.2.2: version, trace, parent, flags. A later version may have more after another dash.
TRACEPARENT_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
# 3.3.1.5: at least so much is to be passed on. What is longer is not passed on at all, rather than in part.
MAX_STATE_CHARACTERS = 512
STATE_FORM = re.compile(r"[\x20-\x7e\t]*")
# 3.2.2.5: of the flags only this is defined, and others are to be sent as 0.
SAMPLED = 0x01


class Trace:
    """One request. `trace_id` and `parent_id`, the span that asked, are empty where no trace was given.

    `span_id` is this request's own span. `state` is what tracers want passed on as it is.
    """

    # As nearly all have them: one is made for every small answer.
    trace_id = parent_id = span_id = state = ""
    flags = 0

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id

    def fields(self) -> dict[str, str]:
        """For a line of the log."""
        if not self.trace_id:
            return {"request_id": self.request_id}
        return {
            "request_id": self.request_id,
            "trace_id": self.trace_id,
            "span_id": self.span_id,
            "parent_id": self.parent_id,
        }

    def headers(self) -> list[tuple[str, str]]:
        """For what is asked of another server on behalf of this request."""
        given = [(REQUEST_ID, self.request_id)]
        if self.trace_id:
            given.append((TRACEPARENT, f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}"))
            if self.state:
                given.append((TRACESTATE, self.state))
        return given


_CURRENT: ContextVar[Trace | None] = ContextVar("fastflight_trace", default=None)


def of(headers: Mapping[str, list[str]]) -> Trace:
    """The trace of a request with these headers (names in small letters, each with all its values).

    What is malformed counts as not given: an id is made then, and a trace begins nowhere.
    """
    given = headers.get(REQUEST_ID, [])
    well_formed = len(given) == 1 and REQUEST_ID_FORM.fullmatch(given[0])
    request_id = given[0] if well_formed else _random()
    parents = headers.get(TRACEPARENT, [])
    parent = _parent(parents[0]) if len(parents) == 1 else None
    found = Trace(request_id)
    if parent is not None:
        found.trace_id, found.parent_id, found.flags = parent
        found.span_id = _random()
        state = ",".join(headers.get(TRACESTATE, []))
        if len(state) <= MAX_STATE_CHARACTERS and STATE_FORM.fullmatch(state):
            found.state = state
    return found


def given(traceparent: str = "", *, tracestate: str = "", request_id: str = "") -> Trace:
    """The trace of what a program asks servers for: its own span asks, and is passed on as it was `given`.

    `RequestError` for what is malformed.
    """
    for name, value, form in (
        (REQUEST_ID, request_id, REQUEST_ID_FORM),
        (TRACESTATE, tracestate, STATE_FORM),
    ):
        if value and not form.fullmatch(value):
            raise RequestError("not one that is passed on", where=name, hint=f"Its form is {form.pattern}")
    found = Trace(request_id or _random())
    if traceparent:
        parent = _parent(traceparent)
        if parent is None:
            raise RequestError(
                "not a traceparent", where=TRACEPARENT, hint="As in 00-<32 digits>-<16 digits>-01, in small letters"
            )
        found.trace_id, found.span_id, found.flags = parent
        found.state = tracestate if len(tracestate) <= MAX_STATE_CHARACTERS else ""
    return found


def made() -> Trace:
    """The trace of a request whose headers nobody reads."""
    return Trace(_random())


def unread() -> bytes:
    """The id of such a request, where it is for the client alone: nothing is done for it, and nothing logged."""
    return b"%016x" % random.getrandbits(64)


def current() -> Trace | None:
    """That of the request on whose behalf this runs; None outside of any."""
    return _CURRENT.get()


@contextmanager
def within(trace: Trace | None) -> Iterator[None]:
    """What is done in the block is done for `trace`."""
    token = _CURRENT.set(trace)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def enter(trace: Trace) -> None:
    """What is done from now on in this context is done for `trace`: for an edge that has a context for each request."""
    _CURRENT.set(trace)


def passed_on() -> list[tuple[bytes, bytes]]:
    """The headers of something that is asked of a server now: of the current request, or of one that begins here."""
    return [(name.encode(), value.encode()) for name, value in (_CURRENT.get() or made()).headers()]


def with_ids(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A processor of structlog: each line says which request it belongs to, unless it says so by itself."""
    trace = _CURRENT.get()
    if trace is not None:
        for name, value in trace.fields().items():
            event.setdefault(name, value)
    return event


def _parent(text: str) -> tuple[str, str, int] | None:
    """Trace, parent and flags of a `traceparent`; None where it is none."""
    found = TRACEPARENT_FORM.fullmatch(text)
    if found is None:
        return None
    version, trace_id, parent_id, flags, more = found.groups()
    if version == "ff" or (version == "00" and more is not None) or not int(trace_id, 16) or not int(parent_id, 16):
        return None
    return trace_id, parent_id, int(flags, 16) & SAMPLED


def _random() -> str:
    """16 digits that nothing else has. They need not be hard to guess, only quick to make."""
    return f"{random.getrandbits(64):016x}"
