"""The gateway at a port: what a client of the standard library sees of it, and how it ends."""

from __future__ import annotations

import http.client
import json
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from typing import Any

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from fastflight.errors import TransportError
from fastflight.gateway import Gateway, listen
from fastflight.gateway.http.connections import Connections
from fastflight.gateway.http.listening import MAX_HEAD_BYTES
from tests.support.waiting import read_until, until

from ..server.conftest import SOON
from .asgi_client import HERE, UPGRADE, Answered, AsgiClient, scope
from .conftest import TrialGateway


@pytest.fixture
def client(listening: Gateway) -> Iterator[http.client.HTTPConnection]:
    with closing(http.client.HTTPConnection("127.0.0.1", listening.port, timeout=SOON)) as connection:
        yield connection


def post(client: http.client.HTTPConnection, accept: str = "*/*", **request: Any) -> http.client.HTTPResponse:
    client.request("POST", "/stream", json.dumps({"type": "trial", **request}), {"accept": accept})
    return client.getresponse()


def test_a_connection_is_used_again_also_after_an_error(client: http.client.HTTPConnection) -> None:
    assert pa.ipc.open_stream(post(client, rows=3).read()).read_all().num_rows == 3
    refused = post(client, row=3)
    assert (refused.status, json.loads(refused.read())["where"]) == (400, "row")
    assert pa.ipc.open_stream(post(client, rows=2).read()).read_all().num_rows == 2


def test_an_error_among_the_rows_is_no_end_for_a_client(client: http.client.HTTPConnection, mode: str) -> None:
    answer = post(client, "application/jsonl", mode=mode, rows=2, error="device")
    with pytest.raises(http.client.IncompleteRead) as raised:
        answer.read()
    *_, last = raised.value.partial.splitlines()
    assert json.loads(last)["error"]["traceback"] == "Traceback (on the board)"


@pytest.mark.parametrize("taken", [0, 100_000, 10_000_000])
def test_an_answer_that_is_stopped_half_way_is_no_end_for_a_client(
    running: TrialGateway, client: http.client.HTTPConnection, mode: str, taken: int
) -> None:
    answer = post(client, mode=mode, type="mock", rows_per_batch=1000, total_rows=400_000)
    assert len(answer.read(taken)) == taken
    running.registry.stop_all()
    with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
        answer.read()


@pytest.mark.usefixtures("lively")
def test_one_that_leaves_cancels_the_source(
    running: TrialGateway, client: http.client.HTTPConnection, mode: str
) -> None:
    answer = post(client, "text/csv", mode=mode, rows=1, idle=True)
    assert answer.read(4) == b"n\n0\n"
    client.close()
    answer.close()
    assert running.trials.closed.wait(SOON)
    assert running.registry.wait_empty(SOON)
    assert running.stats()["cancelled"] == 1


def test_one_that_does_not_read_is_cut_off_by_the_end(running: TrialGateway, mode: str) -> None:
    with listen(running.app, running.shard, 0) as gateway:
        client = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=SOON)
        with closing(client), closing(post(client, mode=mode, rows=100, big=True)):
            assert running.trials.begun.wait(SOON)
            gateway.close(0.1)
    assert running.trials.closed.wait(SOON)
    assert running.registry.wait_empty(SOON)


def test_an_answer_that_nobody_reads_gives_its_device_back(
    running: TrialGateway, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    for name in ("http.connections.STALL_SECONDS", "http.connections.LOOK_SECONDS"):
        monkeypatch.setattr(f"fastflight.gateway.{name}", 0.05)
    connections = Connections()
    with listen(running.app, running.shard, 0, connections=connections) as gateway:
        client = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=SOON)
        with closing(client), closing(post(client, mode=mode, rows=1000, big=True)):
            assert running.trials.closed.wait(SOON)
            assert running.registry.wait_empty(SOON)
    assert (connections.not_read, connections.late) == (1, 0)


@pytest.mark.parametrize("where", ["GET /health", "POST /stream"])
@pytest.mark.parametrize("before", [b"", b"0\r\n", b"0;"])
def test_what_is_around_content_has_an_end_as_the_head_has(listening: Gateway, where: str, before: bytes) -> None:
    with socket.create_connection(("127.0.0.1", listening.port), SOON) as raw:
        raw.sendall(f"{where} HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n".encode() + before)
        with pytest.raises(ConnectionError):
            while True:
                raw.sendall((b"x: " + b"x" * 4091 + b"\r\n") if before != b"0;" else b"x" * 4096)


# Each has two requests for somebody in front who reads it in another way.
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
FRAMED_IN_TWO_WAYS = {
    "a bare return": b"GET /devices HTTP/1.1\r\nhost: 127.0.0.1\rx: y\r\n\r\n",
    "a blank before the colon": b"transfer-encoding : chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n",
    "an encoding that nobody knows": b"transfer-encoding: xchunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n",
    "chunks that are not last": b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "a length with a sign": b"content-length: +2\r\n\r\n{}",
}


@pytest.mark.parametrize("sent", FRAMED_IN_TWO_WAYS.values(), ids=FRAMED_IN_TWO_WAYS.keys())
def test_what_can_be_read_in_two_ways_is_refused_and_what_follows_is_not_read(listening: Gateway, sent: bytes) -> None:
    head = b"" if sent.startswith(b"GET") else b"POST /stream HTTP/1.1\r\nhost: 127.0.0.1\r\n"
    with socket.create_connection(("127.0.0.1", listening.port), SOON) as raw:
        raw.sendall(head + sent + SMUGGLED)
        answer = b"".join(iter(lambda: raw.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 400 ") and answer.count(b"HTTP/1.1 ") == 1 and b"smuggled" not in answer


LONG = {"type": "trial", "rows": 1, "idle": True, "mode": "async"}


def posted(**request: Any) -> bytes:
    content = json.dumps(request).encode()
    head = b"POST /stream HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: text/csv\r\ncontent-length: %d\r\n\r\n"
    return head % len(content) + content


def begun(gateway: Gateway) -> socket.socket:
    """A client that has the beginning of an answer without end."""
    raw = socket.create_connection(("127.0.0.1", gateway.port), SOON)
    raw.sendall(posted(**LONG))
    assert read_until(lambda: raw.recv(65536), b"\r\n0\n\r\n").count(b"HTTP/1.1 ") == 1
    return raw


def test_content_behind_a_request_is_waited_for(listening: Gateway) -> None:
    second = posted(type="trial", rows=2)
    with socket.create_connection(("127.0.0.1", listening.port), SOON) as raw:
        raw.sendall(posted(type="trial", rows=1) + second[:-1])
        read_until(lambda: raw.recv(65536), b"0\r\n\r\n")
        raw.sendall(second[-1:])
        assert read_until(lambda: raw.recv(65536), b"0\r\n\r\n").startswith(b"HTTP/1.1 200 ")


def test_a_small_answer_is_not_given_to_one_who_wants_a_web_socket(listening: Gateway) -> None:
    for ask in (b"\r\n", UPGRADE):  # the first has it made
        with socket.create_connection(("127.0.0.1", listening.port), SOON) as raw:
            raw.sendall(b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n" + ask)
            said = raw.recv(65536)
    assert said.startswith(b"HTTP/1.1 404 ")


def test_content_in_many_small_chunks_is_no_long_head(client: http.client.HTTPConnection) -> None:
    request = json.dumps({"type": "trial", "rows": 3}).encode() + b" " * MAX_HEAD_BYTES
    chunks = (request[at : at + 3] for at in range(0, len(request), 3))
    client.request("POST", "/stream", chunks, {"transfer-encoding": "chunked"}, encode_chunked=True)
    answer = client.getresponse()
    assert answer.status == 200
    assert pa.ipc.open_stream(answer.read()).read_all().num_rows == 3


def end_of(raw: socket.socket) -> bytes:
    """What comes until the connection ends, in whichever way."""
    said = b""
    with suppress(ConnectionError):
        while data := raw.recv(65536):
            said += data
    return said


HEALTH = b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"


@pytest.mark.parametrize("sent", [b"", b"GET /health HTTP/1.1\r\nhost: 127", HEALTH, HEALTH + b"GET"])
def test_a_connection_without_a_request_ends_in_time(
    running: TrialGateway, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    connections = Connections()
    with listen(running.app, running.shard, 0, connections=connections) as gateway:
        with socket.create_connection(("127.0.0.1", gateway.port), SOON) as raw:
            raw.sendall(sent)
            if HEALTH in sent:
                read_until(lambda: raw.recv(65536), b'{"status": "serving"}')
            until(lambda: connections.open == 1)
            monkeypatch.setattr("fastflight.gateway.http.connections.IDLE_SECONDS", 0.05)
            assert end_of(raw) == b""
        until(lambda: not connections.open)
    assert connections.late == (HEALTH not in sent)


@pytest.mark.parametrize("framing", [b"content-length: 10\r\n\r\n{", b"transfer-encoding: chunked\r\n\r\n"])
def test_content_that_stops_is_refused(listening: Gateway, monkeypatch: pytest.MonkeyPatch, framing: bytes) -> None:
    monkeypatch.setattr("fastflight.gateway.content.uploads.STALL_SECONDS", 0.05)
    monkeypatch.setattr("fastflight.gateway.asgi.LEAVE_SECONDS", 0.05)
    with socket.create_connection(("127.0.0.1", listening.port), SOON) as raw:
        raw.sendall(b"POST /stream HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n" + framing)
        assert end_of(raw).startswith(b"HTTP/1.1 408 ")


def test_content_that_drips_is_not_waited_for(running: TrialGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastflight.gateway.content.uploads.WHOLE_SECONDS", 0.0)

    async def run() -> Answered:
        client = AsgiClient(running.app, scope("/stream", "POST", (HERE,)), b"{", whole=False)
        await client.call
        return client.answered

    answered = running.run(run())
    assert (answered.status, answered.json["where"]) == (408, "content")


def test_what_is_too_long_is_answered_early(client: http.client.HTTPConnection) -> None:
    client.putrequest("POST", "/stream")
    client.putheader("content-length", "300000")
    client.endheaders(b" " * 299_999)
    answer = client.getresponse()
    assert (answer.status, json.loads(answer.read())["where"]) == (413, "content")


@pytest.mark.parametrize("connection", ["keep-alive", "close"])
@pytest.mark.parametrize("path", ["/nope", "/devices/nope/files/x.bin?nope=1"])
def test_one_that_is_refused_while_it_sends_is_told_why(
    client: http.client.HTTPConnection, path: str, connection: str
) -> None:
    client.request("PUT", path, bytes(20_000_000), {"connection": connection})
    answer = client.getresponse()
    assert answer.status in (400, 404)
    assert "what" in json.loads(answer.read())


def test_content_behind_an_early_answer_is_discarded(listening: Gateway) -> None:
    with socket.create_connection(("127.0.0.1", listening.port), SOON) as raw:
        raw.sendall(b"PUT /nope HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 10\r\n\r\n")
        assert read_until(lambda: raw.recv(65536), b"}").startswith(b"HTTP/1.1 404 ")
        raw.sendall(bytes(10) + posted(type="trial", rows=1))
        assert read_until(lambda: raw.recv(65536), b"0\r\n\r\n").startswith(b"HTTP/1.1 200 ")


def test_a_connection_that_is_idle_for_longest_makes_room(running: TrialGateway) -> None:
    connections = Connections(max_connections=2)
    with listen(running.app, running.shard, 0, connections=connections) as gateway, ExitStack() as parts:
        there = ("127.0.0.1", gateway.port)
        silent = parts.enter_context(socket.create_connection(there, SOON))
        until(lambda: connections.unasked == 1)
        other = parts.enter_context(socket.create_connection(there, SOON))
        other.sendall(HEALTH)
        read_until(lambda: other.recv(65536), b'{"status": "serving"}')
        for _ in range(3):
            asking = parts.enter_context(socket.create_connection(there, SOON))
            asking.sendall(HEALTH)
            read_until(lambda raw=asking: raw.recv(65536), b'{"status": "serving"}')  # type: ignore[misc]
        assert end_of(silent) == b"" and end_of(other) == b""
    assert (connections.crowded_out, connections.refused) == (3, 0)


def test_no_request_is_cut_for_another_connection(running: TrialGateway) -> None:
    connections = Connections(max_connections=1)
    with listen(running.app, running.shard, 0, connections=connections) as gateway:
        with begun(gateway), socket.create_connection(("127.0.0.1", gateway.port), SOON) as second:
            assert end_of(second) == b""
        assert running.trials.closed.wait(SOON)
    assert (connections.refused, connections.crowded_out) == (1, 0)


def test_a_port_that_somebody_has(running: TrialGateway) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        with pytest.raises(TransportError, match="choose another one with --http"):
            listen(running.app, running.shard, other.getsockname()[1])


def test_counters_for_prometheus(client: http.client.HTTPConnection) -> None:
    post(client, rows=3).read()
    client.request("GET", "/metrics")
    answer = client.getresponse()
    page = answer.read().decode()
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'fastflight_streams_total{outcome="finished",source="trial"} 1.0' in page
    assert 'fastflight_rows_total{source="trial"} 3.0' in page
    assert 'fastflight_http_answers_total{method="POST",status="200"} 1.0' in page
    assert "fastflight_http_connections 1.0" in page


@pytest.mark.parametrize("path", ["/health", "/devices", "/metrics", "/", "/devices/none", "/recordings/none"])
def test_what_can_be_got_has_a_head(client: http.client.HTTPConnection, path: str) -> None:
    def asked(method: str) -> tuple[int, str | None, bytes]:
        client.request(method, path)
        answer = client.getresponse()
        return answer.status, answer.headers["content-type"], answer.read()

    status, media_type, _ = asked("GET")
    assert status != 405
    assert asked("HEAD") == (status, media_type, b"")


def test_requests_that_come_in_one_piece_are_answered_in_order(listening: Gateway) -> None:
    head = b"%b HTTP/1.1\r\nhost: 127.0.0.1\r\n"
    last = b"connection: close\r\n\r\n"
    asked = [head % b"GET /health", b"\r\n"] * 3 + [head % b"GET /nope", b"\r\n", head % b"GET /health", b"\r\n"]
    with socket.create_connection(("127.0.0.1", listening.port), SOON) as raw:
        raw.sendall(b"".join(asked) + head % b"GET /health" + last)
        said = b"".join(iter(lambda: raw.recv(65536), b""))
    assert re.findall(rb"HTTP/1\.1 (\d+)", said) == [b"200"] * 3 + [b"404"] + [b"200"] * 2


def test_a_part_that_fails_to_close_is_logged_and_the_others_close(
    running: TrialGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def end(timeout: float) -> None:
        raise ValueError("no end")

    monkeypatch.setattr(running.app, "end", end)
    gateway = listen(running.app, running.shard, 0)
    with capture_logs() as logs:
        gateway.close(0.1)
        gateway.close(0.1)
    assert [(line["event"], line["part"]) for line in logs] == [("a part of the gateway failed to close", "websockets")]
    with pytest.raises(ConnectionRefusedError), closing(socket.create_connection(("127.0.0.1", gateway.port), SOON)):
        pass
