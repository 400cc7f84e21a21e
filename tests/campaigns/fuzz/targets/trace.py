"""Request ids and traces in the headers of a request: what is passed on and logged is well formed, whatever came."""

from __future__ import annotations

from fastflight.errors import RequestError
from fastflight.runtime.tracing import (
    MAX_STATE_CHARACTERS,
    NAMES,
    REQUEST_ID,
    REQUEST_ID_FORM,
    TRACEPARENT,
    TRACESTATE,
    Trace,
    client_trace,
    from_headers,
)
from tests.campaigns.fuzz.material import Material
from tests.campaigns.fuzz.target import Target

PARENT = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
USUAL = {REQUEST_ID: b"mine-1", TRACEPARENT: PARENT, TRACESTATE: b"congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"}


def check(trace: Trace) -> None:
    assert REQUEST_ID_FORM.fullmatch(trace.request_id)
    assert len(trace.state) <= MAX_STATE_CHARACTERS and "\n" not in trace.state
    passed = trace.headers()
    assert all("\r" not in value and "\n" not in value and value.isascii() for _, value in passed)
    # Who is asked next finds the same.
    found = from_headers({name: [value] for name, value in passed})
    assert (found.request_id, found.trace_id, found.flags) == (trace.request_id, trace.trace_id, trace.flags)
    assert found.parent_id == trace.span_id and found.state == trace.state
    assert set(trace.fields()) <= {"request_id", "trace_id", "span_id", "parent_id"}


def run(data: bytes) -> None:
    material = Material(data)
    headers: dict[str, list[str]] = {}
    while material:
        name = material.pick(sorted(NAMES))
        kind, value = material.byte(), bytearray(USUAL[name])
        if kind & 1:
            at, fresh = material.byte() % (len(value) + 1), material.piece()
            value[at : at + len(fresh)] = fresh
        if kind >= 0xF0:
            value *= 40
        headers.setdefault(name, []).append(value.decode("latin-1"))
    check(from_headers(headers))
    one = {name: values[0] for name, values in headers.items()}
    try:
        made = client_trace(
            one.get(TRACEPARENT, ""), tracestate=one.get(TRACESTATE, ""), request_id=one.get(REQUEST_ID, "")
        )
    except RequestError as error:
        assert str(error)
    else:
        check(made)


TARGET = Target(
    run,
    modules=("fastflight.runtime.tracing",),
    seeds=(
        b"\x00\x00\x01\x00\x02\x00",
        b"\x01\x01\x00\x02ff\x02\x00",
        b"\x01\x01\x37\x05-more",
        b"\x01\x01\x00\x02cc\x00\x01\x02\x01 ",
        b"\x02\xf0\x01\x00\x00\xf1\x00\x01x",
        b"\x01\x00\x01\x00\x02\x00\x02\x00",
    ),
)
