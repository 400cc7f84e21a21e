"""Request ids and trace context over Flight: what is taken, answered, and logged."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.flight as flight
import pytest
import structlog

from fastflight.cli.log import log_to_stderr
from fastflight.client import FastFlightClient, traced
from fastflight.client.interaction import SENT
from fastflight.errors import RequestError
from fastflight_benchmark.mock import Mock
from tests.server.conftest import TrialServer, trial_server
from tests.support.refusals import refused

TRACE_ID, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE_ID}-{SPAN}-01"
FOUND = flight.FlightDescriptor.for_command(b'{"type": "mock", "total_rows": 1}')
TRIAL = flight.FlightDescriptor.for_command(b'{"type": "trial"}')


class Seen(flight.ClientMiddlewareFactory):  # type: ignore[misc]
    """The request ids that answers have."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    def start_call(self, info: flight.CallInfo) -> flight.ClientMiddleware:
        ids = self.ids

        class Middleware(flight.ClientMiddleware):  # type: ignore[misc]
            def received_headers(self, headers: dict[str, list[str]]) -> None:
                ids.extend(headers.get("x-request-id", []))

        return Middleware()


@pytest.fixture
def seen() -> Seen:
    return Seen()


@contextmanager
def asking(*seen: Seen) -> Iterator[tuple[TrialServer, flight.FlightClient]]:
    """A server that takes headers and logs in detail, and a client of it. Within a test: its terminal is another's."""
    log_to_stderr(as_json=True, debug=True)
    with trial_server(trace=True) as running:
        with flight.connect(f"grpc://127.0.0.1:{running.server.port}", middleware=list(seen)) as client:
            yield running, client
            assert running.settled()


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def given(*more: tuple[bytes, bytes]) -> flight.FlightCallOptions:
    return flight.FlightCallOptions(headers=[(b"x-request-id", b"given"), *more])


def put(client: flight.FlightClient, options: flight.FlightCallOptions) -> None:
    writer, reader = client.do_put(TRIAL, pa.schema([("n", pa.int64())]), options)
    with writer:
        writer.done_writing()
        while reader.read() is not None:
            pass


def exchange(client: flight.FlightClient, options: flight.FlightCallOptions) -> None:
    writer, reader = client.do_exchange(FOUND, options)
    with pytest.raises(pa.ArrowInvalid, match="cannot be exchanged"):
        writer.begin(SENT)
        writer.done_writing()
        reader.read_chunk()
    with contextlib.suppress(pa.ArrowInvalid):
        writer.close()


CALLS: dict[str, Callable[[flight.FlightClient, flight.FlightCallOptions], object]] = {
    "list_flights": lambda client, options: list(client.list_flights(b"", options)),
    "get_flight_info": lambda client, options: client.get_flight_info(FOUND, options),
    "get_schema": lambda client, options: client.get_schema(FOUND, options),
    "do_get": lambda client, options: client.do_get(flight.Ticket(FOUND.command), options).read_all(),
    "do_put": put,
    "do_exchange": exchange,
    "list_actions": lambda client, options: client.list_actions(options),
    "do_action": lambda client, options: list(client.do_action(flight.Action("greet", b'{"name": "a"}'), options)),
}


@pytest.mark.parametrize("call", CALLS)
def test_every_call_answers_with_the_id_that_it_was_given(seen: Seen, call: str) -> None:
    with asking(seen) as (_, client):
        CALLS[call](client, given())
    assert set(seen.ids) == {"given"}


@pytest.mark.parametrize("call", CALLS)
def test_without_one_it_answers_with_one_of_its_own(running: TrialServer, seen: Seen, call: str) -> None:
    with flight.connect(f"grpc://127.0.0.1:{running.server.port}", middleware=[seen]) as client:
        CALLS[call](client, flight.FlightCallOptions())
    assert len(seen.ids) == 1 and re.fullmatch(r"[0-9a-f]{16}", seen.ids[0])


def test_an_answer_that_fails_has_one_each_time(running: TrialServer, seen: Seen) -> None:
    with flight.connect(f"grpc://127.0.0.1:{running.server.port}", middleware=[seen]) as client:
        for _ in range(2):
            with pytest.raises(flight.FlightTimedOutError):
                client.do_get(flight.Ticket(b'{"type": "trial", "error": "timeout"}')).read_all()
    assert len(set(seen.ids)) == 2


def test_headers_that_are_no_text_are_no_reason_to_fail(seen: Seen) -> None:
    odd = [(b"x-request-id", b"two words"), (b"traceparent", b"nonsense"), (b"other-bin", b"\xff\x00\xfe")]
    with asking(seen) as (_, client):
        client.do_get(flight.Ticket(FOUND.command), flight.FlightCallOptions(headers=odd)).read_all()
    assert re.fullmatch(r"[0-9a-f]{16}", seen.ids[0])


def test_a_line_says_how_a_request_ended(capsys: pytest.CaptureFixture[str]) -> None:
    with asking() as (_, client):
        client.do_get(
            flight.Ticket(b'{"type": "trial", "rows": 2}'), given((b"traceparent", PARENT.encode()))
        ).read_all()
    (line,) = lines(capsys)
    assert line.pop("seconds") > 0 and line.pop("timestamp") and line.pop("span_id") != SPAN  # type: ignore[operator]
    assert line == {
        "event": "request ended",
        "level": "debug",
        "request": "trial",
        "device": None,
        "identity": "ipv4:127.0.0.1",
        "outcome": "finished",
        "rows": 2,
        "bytes": 16,
        "request_id": "given",
        "trace_id": TRACE_ID,
        "parent_id": SPAN,
    }


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("at_open", [True, False])
def test_the_number_that_a_client_sees_finds_the_traceback(
    capsys: pytest.CaptureFixture[str], mode: str, at_open: bool
) -> None:
    ticket = json.dumps({"type": "trial", "error": "bug", "mode": mode, "at_open": at_open}).encode()
    with asking() as (_, client):
        with pytest.raises(flight.FlightInternalError, match="see the server's log, request id given"):
            client.do_get(flight.Ticket(ticket), given()).read_all()
    failed, ended = sorted(lines(capsys), key=lambda line: line["event"] != "request failed")
    assert (failed["request_id"], failed["level"]) == ("given", "error")
    assert "ZeroDivisionError" in str(failed["exception"])
    assert (ended["request_id"], ended["level"], ended["code"]) == ("given", "info", "internal")


def test_what_a_client_did_wrong_itself_is_told_in_detail_only(capsys: pytest.CaptureFixture[str]) -> None:
    with asking() as (_, client):
        with pytest.raises(pa.ArrowInvalid):
            client.do_get(flight.Ticket(b'{"type": "trial", "error": "data"}')).read_all()
    (line,) = lines(capsys)
    assert (line["level"], line["code"], line["error"]) == ("debug", "data", "bad row")


def test_what_a_board_did_is_told_at_info(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr(as_json=True)
    with trial_server() as running:
        with pytest.raises(flight.FlightTimedOutError):
            running.client.do_get(flight.Ticket(b'{"type": "trial", "error": "timeout"}')).read_all()
        running.client.do_get(flight.Ticket(b'{"type": "trial"}')).read_all()
        assert running.settled()
    (line,) = lines(capsys)
    assert (line["level"], line["code"], line["identity"]) == ("info", "transport.timeout", "ipv4:127.0.0.1")


def test_a_log_that_nobody_has_set_up_stays_silent(capsys: pytest.CaptureFixture[str]) -> None:
    structlog.reset_defaults()
    with trial_server() as running:
        running.client.do_get(flight.Ticket(b'{"type": "trial"}')).read_all()
        with pytest.raises(flight.FlightTimedOutError):
            running.client.do_get(flight.Ticket(b'{"type": "trial", "error": "timeout"}')).read_all()
        assert running.settled()
    assert capsys.readouterr() == ("", "")


def test_a_log_that_cannot_be_written_fails_no_request() -> None:
    with open(os.devnull, "w", encoding="utf-8") as gone, contextlib.redirect_stderr(gone):
        log_to_stderr(as_json=True, debug=True)
    with trial_server() as running:
        assert running.client.do_get(flight.Ticket(b'{"type": "trial"}')).read_all().num_rows == 3


def test_our_client_passes_a_trace_on(capsys: pytest.CaptureFixture[str]) -> None:
    with asking() as (running, _), FastFlightClient(f"grpc://127.0.0.1:{running.server.port}") as client:
        with traced(PARENT, request_id="mine"):
            list(client.read_request(Mock(total_rows=1)))
        with traced() as made:
            list(client.read_request(Mock(total_rows=1)))
        with refused(RequestError, where="traceparent"):
            with traced("nonsense"):
                pass
        assert running.settled()
    first, second = lines(capsys)
    assert (first["request_id"], first["parent_id"]) == ("mine", SPAN)
    assert second["request_id"] == made and "trace_id" not in second
