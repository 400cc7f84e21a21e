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
from fastflight.gateway.http.connections import Connections, origin_of
from fastflight.gateway.http.head import MAX_HEAD_BYTES, MAX_HEADERS
from fastflight.gateway.page.page import files
from tests.support.waiting import auntil, read_until

from ..server.conftest import SOON
from .asgi_client import HERE, UPGRADE, Answered, AsgiClient, scope
from .conftest import TrialGateway
from .guarded_gateway import guarding


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


@pytest.mark.parametrize("behind", [b"G", b"no HTTP\r\n\r\n"])
def test_one_that_is_refused_and_does_not_read_its_last_answer_is_cut(
    running: TrialGateway, monkeypatch: pytest.MonkeyPatch, behind: bytes
) -> None:
    path, _ = max(files().items(), key=lambda each: each[1].stat().st_size)
    monkeypatch.setattr("fastflight.gateway.http.connections.LOOK_SECONDS", 0.05)
    connections = Connections()

    async def small() -> None:
        for connection in connections._open:
            connection.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # type: ignore[attr-defined]

    async def cut() -> None:
        await auntil(lambda: connections.not_read)

    with listen(running.app, running.shard, 0, connections=connections) as gateway, socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.connect(("127.0.0.1", gateway.port))
        raw.sendall(b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        read_until(lambda: raw.recv(65536), b'{"status": "serving"}')
        running.run(small())
        raw.sendall(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode())
        assert raw.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 200"
        for name in ("http.uvicorn_overrides.HEAD_SECONDS", "http.connections.STALL_SECONDS"):
            monkeypatch.setattr(f"fastflight.gateway.{name}", 0.05)
        raw.sendall(behind)
        running.run(cut())
    assert connections.open == 0


def test_a_head_without_end_is_refused(listening: Gateway) -> None:
    with socket.create_connection(("127.0.0.1", listening.port), SOON) as raw:
        raw.sendall(b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\nx: ")
        sent = 0
        try:
            while sent <= 4 * MAX_HEAD_BYTES:
                raw.sendall(b"x" * 4096)
                sent += 4096
            assert raw.recv(100).startswith(b"HTTP/1.1 431 ")
        except ConnectionError:
            pass  # it was closed while there was more to send


@pytest.mark.parametrize("where", ["GET /health", "POST /stream"])
@pytest.mark.parametrize("before", [b"", b"0\r\n", b"0;"])
def test_what_is_around_content_has_an_end_as_the_head_has(
    listening: Gateway, monkeypatch: pytest.MonkeyPatch, where: str, before: bytes
) -> None:
    """By its size or, if the answer was sent by then, by time."""
    for name in ("http.uvicorn_overrides.LEAVE_SECONDS", "http.connections.LOOK_SECONDS"):
        monkeypatch.setattr(f"fastflight.gateway.{name}", 0.05)
    with socket.create_connection(("127.0.0.1", listening.port), SOON) as raw:
        raw.sendall(f"{where} HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n".encode() + before)
        with pytest.raises(ConnectionError):
            while True:
                raw.sendall((b"x: " + b"x" * 4091 + b"\r\n") if before != b"0;" else b"x" * 4096)


# Each has two requests for somebody in front who reads it in another way.
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
FRAMED_IN_TWO_WAYS = {
    "a head of bare line feeds": b"GET /devices HTTP/1.1\nhost: 127.0.0.1\n\n",
    "a bare line feed": b"GET /devices HTTP/1.1\r\nhost: 127.0.0.1\nx: y\r\n\r\n",
    "a bare return": b"GET /devices HTTP/1.1\r\nhost: 127.0.0.1\rx: y\r\n\r\n",
    "a blank before the colon": b"transfer-encoding : chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n",
    "an encoding that nobody knows": b"transfer-encoding: xchunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n",
    "chunks that are not last": b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "chunks on a folded line": b"content-length: 2\r\ntransfer-encoding:\r\n chunked\r\n\r\n{}",
    "a length and chunks": b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "a length twice": b"content-length: 2\r\ncontent-length: 2\r\n\r\n{}",
    "two lengths in one": b"content-length: 2, 2\r\n\r\n{}",
    "a length with a sign": b"content-length: +2\r\n\r\n{}",
    "a chunk of bare line feeds": b"transfer-encoding: chunked\r\n\r\n2\n{}\n0\n\n",
    "a chunk with a blank": b"transfer-encoding: chunked\r\n\r\n2 \r\n{}\r\n0\r\n\r\n",
    "a chunk of more than 64 bits": b"transfer-encoding: chunked\r\n\r\nfffffffffffffffff2\r\n{}\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("sent", FRAMED_IN_TWO_WAYS.values(), ids=FRAMED_IN_TWO_WAYS.keys())
def test_what_can_be_read_in_two_ways_is_refused_and_what_follows_is_not_read(listening: Gateway, sent: bytes) -> None:
    head = b"" if sent.startswith(b"GET") else b"POST /stream HTTP/1.1\r\nhost: 127.0.0.1\r\n"
    with socket.create_connection(("127.0.0.1", listening.port), SOON) as raw:
        raw.sendall(head + sent + SMUGGLED)
        answer = b"".join(iter(lambda: raw.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 400 ") and answer.count(b"HTTP/1.1 ") == 1 and b"smuggled" not in answer


HEADS = {
    "no host": (b"GET /health HTTP/1.1\r\n\r\n", 400),
    "the host twice": (b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\nhost: 127.0.0.1\r\n\r\n", 400),
    "two codings": (
        b"POST /stream HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        501,
    ),
    "two lines of codings": (
        b"POST / HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: br\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        501,
    ),
    "a coding of HTTP/1.0": (
        b"POST /stream HTTP/1.0\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    "a long head in one piece": (
        b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\nx: " + b"x" * MAX_HEAD_BYTES + b"\r\n\r\n",
        431,
    ),
    "many headers": (b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n" + b"x: y\r\n" * MAX_HEADERS + b"\r\n", 431),
    "a long target": (b"GET /" + b"x" * MAX_HEAD_BYTES + b" HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", 414),
    "another scheme": (b"GET ftp://127.0.0.1/health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", 400),
    "a user in the target": (b"GET http://a@127.0.0.1/health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", 400),
    "a tunnel": (b"CONNECT 127.0.0.1:80 HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", 400),
}


@pytest.mark.parametrize(("sent", "status"), HEADS.values(), ids=HEADS.keys())
@pytest.mark.parametrize("before", [b"", b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"], ids=["first", "second"])
def test_a_bad_head_is_refused_and_what_follows_is_not_read(
    listening: Gateway, before: bytes, sent: bytes, status: int
) -> None:
    with socket.create_connection(("127.0.0.1", listening.port), SOON) as raw:
        if before:
            raw.sendall(before)
            read_until(lambda: raw.recv(65536), b'{"status": "serving"}')
        raw.sendall(sent + SMUGGLED)
        answer = b""
        with suppress(ConnectionError):  # there was more to read
            answer = b"".join(iter(lambda: raw.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 %d " % status) and answer.count(b"HTTP/1.1 ") == 1, answer


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        (b"http://127.0.0.1/health", b"127.0.0.1", 200),
        (b"HTTP://localhost:8000/health?x", b"127.0.0.1", 200),
        (b"http://[::1]:8000/health", b"evil.example", 200),
        (b"http://evil.example/health", b"127.0.0.1", 421),
        (b"http://127.0.0.1.evil.example/health", b"127.0.0.1", 421),
        (b"http://evil.example?http://127.0.0.1/", b"127.0.0.1", 421),
        (b"http://127.0.0.1", b"127.0.0.1", 200),
    ],
)
@pytest.mark.parametrize("times", [1, 2])
def test_a_target_that_names_its_host_is_for_that_host(
    listening: Gateway, target: bytes, host: bytes, status: int, times: int
) -> None:
    for _ in range(times):  # the second time the answer may be ready
        with socket.create_connection(("127.0.0.1", listening.port), SOON) as raw:
            raw.sendall(b"GET %b HTTP/1.1\r\nhost: %b\r\nconnection: close\r\n\r\n" % (target, host))
            answer = b"".join(iter(lambda: raw.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 %d " % status), answer


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


# What a client may send behind a request whose answer has begun.
BEHIND = {
    "a request": b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
    "many requests": b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n" * 10_000,
    "a content": b"POST /stream HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 200001\r\n\r\n" + b" " * 200_000,
    "a WebSocket": b"GET /ws/fleet HTTP/1.1\r\nhost: 127.0.0.1\r\n" + UPGRADE,
    "no HTTP": b"@\r\n\r\n",
    "a part of a head": b"GET /health HTTP/1.1\r\n",
}


@pytest.mark.parametrize("behind", BEHIND.values(), ids=BEHIND.keys())
def test_one_that_asks_for_more_and_leaves_cancels_the_source(running: TrialGateway, behind: bytes) -> None:
    with listen(running.app, running.shard, 0) as gateway:
        with begun(gateway) as raw:
            raw.sendall(behind)
        assert running.trials.closed.wait(SOON)
        assert running.registry.wait_empty(SOON)


@pytest.mark.parametrize("behind", ["a WebSocket", "no HTTP", "a part of a head"])
def test_no_refusal_stands_in_an_answer(listening: Gateway, monkeypatch: pytest.MonkeyPatch, behind: str) -> None:
    monkeypatch.setattr("fastflight.gateway.http.connections.LOOK_SECONDS", 0.05)
    with begun(listening) as raw:
        monkeypatch.setattr("fastflight.gateway.http.uvicorn_overrides.HEAD_SECONDS", 0.05)
        raw.sendall(BEHIND[behind])
        with suppress(ConnectionError):
            assert raw.recv(65536) == b""


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
    chunks = (request[place : place + 1] for place in range(len(request)))
    client.request("POST", "/stream", chunks, {"transfer-encoding": "chunked"}, encode_chunked=True)
    answer = client.getresponse()
    assert answer.status == 200
    assert pa.ipc.open_stream(answer.read()).read_all().num_rows == 3


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"", b""),
        (b"GET /health HTTP/1.1\r\nhost: 127", b"HTTP/1.1 408 "),
        (b"POST /stream HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 10\r\n\r\n{", b"HTTP/1.1 408 "),
        (b"POST /stream HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n", b"HTTP/1.1 408 "),
        (b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\nGET", b"HTTP/1.1 200 "),
    ],
)
def test_who_stops_sending_is_left(
    listening: Gateway, monkeypatch: pytest.MonkeyPatch, sent: bytes, said: bytes
) -> None:
    def hurry() -> None:
        for name in ("HEAD_SECONDS", "CONTENT_STALL_SECONDS"):
            monkeypatch.setattr(f"fastflight.gateway.http.uvicorn_overrides.{name}", 0.05)

    monkeypatch.setattr("fastflight.gateway.http.connections.LOOK_SECONDS", 0.05)
    if not sent:
        hurry()
    with socket.create_connection(("127.0.0.1", listening.port), SOON) as raw:
        if sent:  # who connects may take its time: it is in a hurry from its second request on
            raw.sendall(b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            read_until(lambda: raw.recv(65536), b'{"status": "serving"}')
            hurry()
            raw.sendall(sent)
        assert b"".join(iter(lambda: raw.recv(65536), b"")).startswith(said)


@pytest.mark.parametrize("path", [b"/health", b"/openapi.json"])
def test_who_asks_nothing_more_is_left_and_not_called_late(
    running: TrialGateway, monkeypatch: pytest.MonkeyPatch, path: bytes
) -> None:
    monkeypatch.setattr("fastflight.gateway.http.uvicorn_overrides.KEEP_ALIVE_SECONDS", 0.05)
    monkeypatch.setattr("fastflight.gateway.http.connections.LOOK_SECONDS", 0.05)
    connections = Connections()
    with listen(running.app, running.shard, 0, connections=connections) as gateway:
        for _ in range(2):  # the first answer to /health is made, the second is ready
            with socket.create_connection(("127.0.0.1", gateway.port), SOON) as raw:
                raw.sendall(b"GET %b HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n" % path)
                assert b"".join(iter(lambda: raw.recv(65536), b"")).startswith(b"HTTP/1.1 200 ")
    assert connections.late == 0


def test_no_answer_is_taken_for_what_it_is_not(listening: Gateway) -> None:
    """Made, ready, by FastAPI, streamed, refused by the application, by uvicorn, and before either."""
    head = b"%b HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n%b\r\n"
    upgrade = b"upgrade: websocket\r\nconnection: upgrade\r\n"
    asked = [
        head % (b"GET /health", b""),
        b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n" * 2 + head % (b"GET /health", b""),
        head % (b"GET /openapi.json", b""),
        head % (b"POST /stream", b"content-length: 26\r\n") + b'{"type":"trial","rows": 3}',
        head % (b"GET /nope", b""),
        b"no HTTP\r\n\r\n",
        b"GET /health HTTP/1.1\r\nx: " + b"x" * MAX_HEAD_BYTES,
        b"GET /ws/nope HTTP/1.1\r\nhost: 127.0.0.1\r\nsec-websocket-version: 13\r\n"
        b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n" + upgrade + b"\r\n",
    ]
    for each in asked:
        with socket.create_connection(("127.0.0.1", listening.port), SOON) as raw:
            raw.sendall(each)
            said = b"".join(iter(lambda: raw.recv(65536), b""))
        answers = said.count(b"HTTP/1.1 ")
        assert answers == (3 if each.startswith(b"GET /health") and each.count(b"GET") == 3 else 1), said
        assert said.count(b"x-content-type-options: nosniff\r\n") == answers, said
        assert said.count(b"referrer-policy: no-referrer\r\n") == answers, said


def test_content_that_drips_is_not_waited_for(running: TrialGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastflight.gateway.content.uploads.WHOLE_SECONDS", 0.0)

    async def run() -> Answered:
        client = AsgiClient(running.app, scope("/stream", "POST", (HERE,)), b"{", whole=False)
        await client.call
        return client.answered

    answered = running.run(run())
    assert (answered.status, answered.json["where"]) == (408, "content")


def test_what_is_answered_early_ends_its_connection(client: http.client.HTTPConnection) -> None:
    client.putrequest("POST", "/stream")
    client.putheader("content-length", "300000")
    client.endheaders(b" " * 299_999)
    answer = client.getresponse()
    assert (answer.status, json.loads(answer.read())["where"]) == (413, "content")
    with suppress(ConnectionError):  # what it sent was not read
        assert client.sock is None or client.sock.recv(1) == b""


@pytest.mark.parametrize("connection", ["keep-alive", "close"])
@pytest.mark.parametrize("path", ["/nope", "/devices/nope/files/x.bin?nope=1"])
def test_one_that_is_refused_while_it_sends_is_told_why(
    client: http.client.HTTPConnection, path: str, connection: str
) -> None:
    client.request("PUT", path, bytes(20_000_000), {"connection": connection})
    answer = client.getresponse()
    assert answer.status in (400, 404)
    assert "what" in json.loads(answer.read())


def test_what_follows_an_early_answer_is_not_looked_at(running: TrialGateway, listening: Gateway) -> None:
    with socket.create_connection(("127.0.0.1", listening.port), SOON) as raw:
        raw.sendall(b"PUT /nope HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 10\r\n\r\n")
        assert read_until(lambda: raw.recv(65536), b"}").startswith(b"HTTP/1.1 404 ")
        raw.sendall(bytes(10) + posted(type="trial"))
        assert raw.recv(1) == b""
    assert not running.trials.begun.is_set()


def test_silent_connections_keep_nobody_out(running: TrialGateway) -> None:
    with listen(running.app, running.shard, 0, connections=Connections(max_unasked=3)) as gateway:
        with ExitStack() as parts:
            there = ("127.0.0.1", gateway.port)
            silent = [parts.enter_context(socket.create_connection(there, SOON)) for _ in range(5)]
            asking = parts.enter_context(closing(http.client.HTTPConnection(*there, timeout=SOON)))
            asking.request("GET", "/health")
            assert asking.getresponse().read()
            for cut in silent[:3]:
                with suppress(ConnectionError):
                    assert cut.recv(1) == b""


def test_one_connection_too_many_is_told_so(running: TrialGateway) -> None:
    connections = Connections(max_connections=1)
    with listen(running.app, running.shard, 0, connections=connections) as gateway:
        with begun(gateway):  # whose request is not cut for another one
            with socket.create_connection(("127.0.0.1", gateway.port), SOON) as second:
                said = b"".join(iter(lambda: second.recv(65536), b""))
        assert running.trials.closed.wait(SOON)
    assert said.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert b"too many connections" in said
    assert (connections.refused, connections.unasked) == (1, 0)


class Resting:
    """A connection that has asked once, from an address of this computer, and may ask again."""

    def __init__(
        self, gateway: Gateway, parts: ExitStack, address: str = "127.0.0.1", *, path: str = "/devices", token: str = ""
    ) -> None:
        there = ("127.0.0.1", gateway.port)
        self._raw = parts.enter_context(socket.create_connection(there, SOON, (address, 0)))
        proof = f"authorization: Bearer {token}\r\n" if token else ""
        self._head = f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{proof}\r\n".encode()
        assert self.answers()

    def answers(self) -> bool:
        with suppress(ConnectionError):
            self._raw.sendall(self._head)
            return self._raw.recv(65536).startswith(b"HTTP/1.1 ")
        return False


def test_connections_that_rest_make_room_the_oldest_first(running: TrialGateway) -> None:
    connections = Connections(max_connections=3)
    with listen(running.app, running.shard, 0, connections=connections) as gateway, ExitStack() as parts:
        first, second, third, fourth = (Resting(gateway, parts) for _ in range(4))
        assert not first.answers()
        assert second.answers() and third.answers() and fourth.answers()
    assert (connections.crowded_out, connections.refused) == (1, 0)


def test_connections_of_one_address_make_room_for_others(running: TrialGateway) -> None:
    connections = Connections(max_connections=4, max_of_one_address=3)
    with listen(running.app, running.shard, 0, connections=connections) as gateway, ExitStack() as parts:
        other = Resting(gateway, parts, "127.0.0.2")
        many = [Resting(gateway, parts) for _ in range(4)]  # of which it may have three
        assert [each.answers() for each in (*many, other)] == [False, True, True, True, True]
        another = Resting(gateway, parts, "127.0.0.3")
        assert [each.answers() for each in (*many[1:], other, another)] == [False, True, True, True, True]


def test_an_address_whose_connections_are_all_busy_leaves_room_for_others(running: TrialGateway) -> None:
    connections = Connections(max_connections=2, max_of_one_address=1)
    with listen(running.app, running.shard, 0, connections=connections) as gateway, ExitStack() as parts:
        with begun(gateway):
            with socket.create_connection(("127.0.0.1", gateway.port), SOON) as refused:
                assert read_until(lambda: refused.recv(65536), b"too many connections").startswith(b"HTTP/1.1 503 ")
            assert Resting(gateway, parts, "127.0.0.2").answers()
        assert running.trials.closed.wait(SOON)


def test_connections_without_a_proof_make_room_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastflight.gateway.middleware.Connections", lambda: Connections(max_connections=3))
    with guarding() as guarded, ExitStack() as parts:
        proven = [Resting(guarded.gateway, parts, token=guarded.tokens["admin"]) for _ in range(2)]
        strangers = [Resting(guarded.gateway, parts, path="/health") for _ in range(3)]
        assert [each.answers() for each in strangers] == [False, False, True]
        assert all(each.answers() for each in proven)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
    ],
)
def test_what_counts_as_one_address(one: str, other: str, same: bool) -> None:
    assert (origin_of(one) == origin_of(other)) is same


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


def test_the_examples_of_the_description_work_or_name_their_device(client: http.client.HTTPConnection) -> None:
    client.request("GET", "/openapi.json")
    paths = json.loads(client.getresponse().read())["paths"]
    assert "/devices/{device}/files/{path}" in paths
    content = paths["/stream"]["post"]["requestBody"]["content"]["application/json"]
    client.request("POST", "/stream", json.dumps(content["examples"]["table"]["value"]))
    assert pa.ipc.open_stream(client.getresponse().read()).read_all().num_rows == 1000


def test_an_answer_that_is_ready_is_the_same(
    client: http.client.HTTPConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastflight.gateway.shared_answers.LIFETIME_SECONDS", SOON)

    def get(**headers: str) -> tuple[int, bytes, list[tuple[str, str]]]:
        client.request("GET", "/health", headers=headers)
        answer = client.getresponse()
        return answer.status, answer.read(), sorted(answer.headers.items())

    made, found = get(), get()
    assert made[:2] == found[:2] == (200, b'{"status": "serving"}')
    assert [name for name, _ in made[2]] == [name for name, _ in found[2]]
    assert get(**{"if-none-match": dict(found[2])["etag"]})[:2] == (304, b"")
    assert get(origin="http://evil.example")[0] == 403
    assert get()[:2] == (200, b'{"status": "serving"}')
    assert post(client, row=3).read()
    assert get()[:2] == (200, b'{"status": "serving"}')


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
