"""Request ids and W3C trace context: what is taken of headers, passed on, and logged."""

from __future__ import annotations

import asyncio
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.concurrency import Shard, off_loop
from fastflight.errors import RequestError
from fastflight.runtime import tracing as trace
from fastflight.runtime.tracing import MAX_STATE_CHARACTERS, Trace
from tests.support.refusals import refused

TRACE_ID, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE_ID}-{SPAN}-01"


def test_a_request_id_is_taken_as_it_is() -> None:
    found = trace.from_headers({"x-request-id": ["7f3c:a/b=1"]})
    assert found.headers() == [("x-request-id", "7f3c:a/b=1")]
    assert found.fields() == {"request_id": "7f3c:a/b=1"}


@pytest.mark.parametrize("values", [[], [""], ["x" * 65], ["two words"], ["a\nb"], ['"'], ["é"], ["one", "two"]])
def test_one_that_is_not_well_formed_is_replaced(values: list[str]) -> None:
    made = trace.from_headers({"x-request-id": values}).request_id
    assert re.fullmatch(r"[0-9a-f]{16}", made)
    assert made != trace.from_headers({"x-request-id": values}).request_id


def test_a_traceparent_is_passed_on_with_a_span_of_our_own() -> None:
    found = trace.from_headers({"x-request-id": ["a"], "traceparent": [PARENT], "tracestate": ["congo=t61rcWkgMzE"]})
    assert (found.trace_id, found.parent_id, found.flags) == (TRACE_ID, SPAN, 1)
    assert re.fullmatch(r"[0-9a-f]{16}", found.span_id) and found.span_id != SPAN
    assert found.headers() == [
        ("x-request-id", "a"),
        ("traceparent", f"00-{TRACE_ID}-{found.span_id}-01"),
        ("tracestate", "congo=t61rcWkgMzE"),
    ]
    assert found.fields() == {"request_id": "a", "trace_id": TRACE_ID, "span_id": found.span_id, "parent_id": SPAN}


@pytest.mark.parametrize(
    "values",
    [
        [PARENT.upper()],
        [PARENT + "-more"],
        [PARENT[:-1]],
        [PARENT + " "],
        [PARENT, PARENT],
        ["ff" + PARENT[2:]],
        [f"00-{'0' * 32}-{SPAN}-01"],
        [f"00-{TRACE_ID}-{'0' * 16}-01"],
        ["cc" + PARENT[2:] + ".more"],
        ["00-" + "٣" * 32 + f"-{SPAN}-01"],
    ],
)
def test_a_malformed_traceparent_is_ignored_and_its_state_with_it(values: list[str]) -> None:
    found = trace.from_headers({"x-request-id": ["a"], "traceparent": values, "tracestate": ["a=b"]})
    assert found.headers() == [("x-request-id", "a")]


@pytest.mark.parametrize("text", ["cc" + PARENT[2:], "cc" + PARENT[2:] + "-what the future brings"])
def test_a_later_version_is_read_as_this_one(text: str) -> None:
    found = trace.from_headers({"traceparent": [text]})
    assert (found.trace_id, found.parent_id) == (TRACE_ID, SPAN)
    assert found.headers()[1][1].startswith("00-")


def test_flags_that_are_not_defined_are_not_passed_on() -> None:
    assert trace.from_headers({"traceparent": [PARENT[:-2] + "fe"]}).headers()[1][1].endswith("-00")


def test_states_are_joined_and_dropped_whole_when_too_long() -> None:
    both = {"traceparent": [PARENT], "tracestate": ["a=1", "b=2"]}
    assert trace.from_headers(both).state == "a=1,b=2"
    assert trace.from_headers({**both, "tracestate": ["a=" + "x" * (MAX_STATE_CHARACTERS - 2)]}).state
    assert trace.from_headers({**both, "tracestate": ["a=" + "x" * (MAX_STATE_CHARACTERS - 1)]}).state == ""
    assert trace.from_headers({**both, "tracestate": ["a=\r\nevil: 1"]}).state == ""


@given(st.dictionaries(st.sampled_from(sorted(trace.NAMES)), st.lists(st.text(max_size=80), max_size=3)))
def test_whatever_comes_what_is_passed_on_is_well_formed(headers: dict[str, list[str]]) -> None:
    found = trace.from_headers(headers)
    again = trace.from_headers({name: [value] for name, value in found.headers()})
    assert again.request_id == found.request_id and again.trace_id == found.trace_id
    assert all(value.isascii() and value.isprintable() for name, value in found.headers() if name != "tracestate")


def test_a_program_passes_its_own_span_on() -> None:
    asked = trace.client_trace(PARENT, tracestate="a=1", request_id="mine")
    assert asked.headers() == [("x-request-id", "mine"), ("traceparent", PARENT), ("tracestate", "a=1")]
    with refused(RequestError, where="traceparent"):
        trace.client_trace(PARENT.upper())
    with refused(RequestError, where="x-request-id"):
        trace.client_trace(request_id="two words")


def test_a_line_of_the_log_says_whose_it_is_unless_it_says_so_itself() -> None:
    with trace.within(Trace("a")):
        assert trace.with_ids(None, "info", {"event": "x"}) == {"event": "x", "request_id": "a"}
        assert trace.with_ids(None, "info", {"request_id": "b"}) == {"request_id": "b"}
    assert trace.with_ids(None, "info", {"event": "x"}) == {"event": "x"}


def test_it_crosses_to_a_shard_and_from_there_to_threads() -> None:
    async def work() -> list[str]:
        found = [trace.current(), await asyncio.create_task(_seen()), await off_loop(trace.current)]
        return [each.request_id for each in found if each is not None]

    async def _seen() -> Trace | None:
        return trace.current()

    with Shard() as shard:
        with trace.within(Trace("a")):
            running = shard.submit(work())
        assert running.result(10) == ["a", "a", "a"]
        assert shard.submit(_seen()).result(10) is None


def test_what_is_asked_of_another_server_has_the_same_id() -> None:
    with trace.within(Trace("a")):
        assert trace.outgoing_headers() == [(b"x-request-id", b"a")]
    assert trace.outgoing_headers() != trace.outgoing_headers()
