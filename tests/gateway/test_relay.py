"""The relay: what passes between a WebSocket and a TCP target, how each of them ends, and what a stalled one costs."""

from __future__ import annotations

import itertools
import json
import select
import socket
import struct
import threading
from collections.abc import Iterator, MutableMapping
from contextlib import ExitStack, closing, contextmanager
from typing import Any
from urllib.parse import quote

import pytest
import structlog
from websockets.exceptions import ConnectionClosed, ConnectionClosedOK, InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.sync.client import ClientConnection, connect

from fastflight.concurrency import Shard
from fastflight.gateway import AllowedTargets, Gateway, OriginPolicy, Relay, listen
from fastflight.gateway.asgi import Receive, Scope, Send
from fastflight.gateway.middleware import GatewayMiddleware
from fastflight.gateway.relay import relay as relay_module
from fastflight.gateway.ws.sockets import Sockets
from fastflight.gateway.ws.tickets import Tickets
from tests.support.waiting import until

from ..server.conftest import SOON
from .raw_websocket import BINARY, CONTINUATION, accepted, frame, opened

MIB = 1024 * 1024
# More than the buffers of all sockets on the way hold together.
MUCH = 32 * MIB
PINGS, PING_BYTES = 160_000, 125


async def nothing(scope: Scope, receive: Receive, send: Send) -> None:
    """The application beside the WebSockets."""


class RelayGateway:
    """A gateway that has only a relay, to all ports of this computer, and the log of its streams."""

    def __init__(self, timing: bool = False) -> None:
        self.log: list[MutableMapping[str, Any]] = []
        relay = Relay(AllowedTargets(["127.0.0.1:*", "[::1]:*"]), timing=timing)
        self.sockets = Sockets({"tcp": relay}, Tickets())
        self.app = GatewayMiddleware(OriginPolicy(), nothing, self.sockets)
        self.gateway: Gateway = listen(self.app, Shard("gateway").start(), 0)

    def url(self, port: int | str, host: str = "127.0.0.1") -> str:
        return f"{self.gateway.url.replace('http', 'ws')}/ws/tcp?host={quote(host)}&port={quote(str(port))}"

    def path(self, listener: socket.socket) -> str:
        return f"/ws/tcp?host=127.0.0.1&port={listener.getsockname()[1]}"

    @contextmanager
    def connect(self, listener: socket.socket, **options: Any) -> Iterator[tuple[ClientConnection, socket.socket]]:
        """A client, and the connection of the target that it is relayed to."""
        with connect(self.url(listener.getsockname()[1]), close_timeout=SOON, **options) as client:
            there, _ = listener.accept()
            with there:
                there.settimeout(SOON)
                yield client, there

    def ended(self) -> MutableMapping[str, Any]:
        """The log line of the next stream that ends."""
        until(lambda: [entry for entry in self.log if entry["event"] == "relayed"])
        return self.log.pop()


@contextmanager
def serving(**options: Any) -> Iterator[RelayGateway]:
    relay = RelayGateway(**options)
    with structlog.testing.capture_logs() as log, relay.gateway:
        relay.log = log
        yield relay


@pytest.fixture
def relay() -> Iterator[RelayGateway]:
    with serving() as relay:
        yield relay


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(SOON)
        yield listener


def received(there: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size and (piece := there.recv(1 << 16)):
        data += piece
    return bytes(data)


def error_of(client: ClientConnection) -> tuple[int, dict[str, Any]]:
    """The close code and the error with which a WebSocket ends."""
    message: Any = None
    with pytest.raises(ConnectionClosed) as caught:
        while True:
            message = client.recv(SOON)
    assert caught.value.rcvd is not None and isinstance(message, str), message
    return caught.value.rcvd.code, json.loads(message)["error"]


def test_bytes_pass_both_ways_unchanged(relay: RelayGateway, listener: socket.socket) -> None:
    content = bytes(range(256)) * 4096
    with relay.connect(listener) as (client, there):
        client.send(content[:100_000])
        client.send("\r\x03é")
        client.send(b"")
        expected = content[:100_000] + "\r\x03é".encode()
        assert received(there, len(expected)) == expected
        threading.Thread(target=there.sendall, args=(content,)).start()
        found = b""
        while len(found) < len(content):
            message = client.recv(SOON)
            assert isinstance(message, bytes) and len(message) <= relay_module.READ_BYTES
            found += message
        assert found == content
    line = relay.ended()
    assert line["received"].startswith("1MB in ") and line["sent_bytes"] == len(expected)


def test_the_end_of_the_target_closes_the_websocket_after_its_last_bytes(
    relay: RelayGateway, listener: socket.socket
) -> None:
    with relay.connect(listener) as (client, there):
        there.sendall(b"last words")
        there.close()
        assert client.recv(SOON) == b"last words"
        with pytest.raises(ConnectionClosedOK):
            client.recv(SOON)
    line = relay.ended()
    assert line["ended"] == "the target has ended the connection"
    assert line["received"].startswith("10B in ") and line["received"].endswith(" 1 reads)")


def test_the_end_of_the_websocket_ends_the_connection_after_its_last_bytes(
    relay: RelayGateway, listener: socket.socket
) -> None:
    with relay.connect(listener) as (client, there):
        client.send(b"x" * MIB)
        client.close()
        assert received(there, MIB + 1) == b"x" * MIB
    assert relay.ended()["ended"] == "the client has left"


def test_a_client_that_vanishes_ends_the_connection(relay: RelayGateway, listener: socket.socket) -> None:
    with relay.connect(listener) as (client, there):
        client.socket.shutdown(socket.SHUT_RDWR)
        assert there.recv(1) == b""


@pytest.mark.parametrize("last", [b"", b"last words"])
def test_a_target_that_breaks_the_connection_is_an_error(
    relay: RelayGateway, listener: socket.socket, last: bytes
) -> None:
    with relay.connect(listener) as (client, there):
        there.sendall(b"x")
        assert client.recv(SOON) == b"x"
        there.sendall(last)
        there.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        there.close()
        code, error = error_of(client)
        assert code == 4502 and error["what"] == "connection reset by peer"
        assert error["where"] == f"127.0.0.1:{listener.getsockname()[1]}"


def test_a_target_that_takes_no_more_still_sends(relay: RelayGateway, listener: socket.socket) -> None:
    with relay.connect(listener) as (client, there):
        there.shutdown(socket.SHUT_RD)
        client.send(bytes(MIB))
        there.sendall(b"still here")
        assert client.recv(SOON) == b"still here"


@pytest.mark.parametrize(
    ("query", "code", "what"),
    [
        ("host=192.0.2.1&port=23", 4403, "the relay may not connect there"),
        ("host=127.0.0.1&port=0", 4400, "not a port"),
    ],
)
def test_a_target_that_is_none_is_an_error_on_the_websocket(
    relay: RelayGateway, query: str, code: int, what: str
) -> None:
    with connect(relay.url(1).partition("?")[0] + "?" + query) as client:
        found, error = error_of(client)
    assert (found, error["what"]) == (code, what)
    assert relay.ended()["ended"] == what


def test_a_port_without_a_listener_is_an_error(relay: RelayGateway) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with connect(relay.url(port)) as client:
        code, error = error_of(client)
    assert code == 4502 and error["what"] == "connection refused" and error["where"] == f"127.0.0.1:{port}"


def test_the_gateways_own_port_is_no_target(relay: RelayGateway) -> None:
    with connect(relay.url(relay.gateway.port)) as client:
        assert error_of(client)[0] == 4403


def test_a_target_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_module, "CONNECT_SECONDS", 0.1)
    with serving() as relay, ExitStack() as parts:
        full = parts.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        waiting = [parts.enter_context(closing(socket.socket())) for _ in range(8)]
        for each in waiting:  # when the queue of a listener is full, Linux answers nobody
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        client = parts.enter_context(connect(relay.url(full.getsockname()[1])))
        code, error = error_of(client)
    assert code == 4504 and error["what"] == "no answer within 0.1 s"


@pytest.mark.parametrize("path", ["/ws/tcp/127.0.0.1?port=1", "/ws/tcp?host=127.0.0.1&port=1&prot=x"])
def test_another_path_or_key_is_refused(relay: RelayGateway, path: str) -> None:
    with pytest.raises(InvalidStatus), connect(relay.gateway.url.replace("http", "ws") + path):
        pass


def test_streams_are_limited_and_an_ended_one_makes_room(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "MAX_STREAMS", 3)
    with serving() as relay, ExitStack() as streams:
        open_ = [streams.enter_context(relay.connect(listener)) for _ in range(3)]
        with connect(relay.url(listener.getsockname()[1])) as client:
            code, error = error_of(client)
        assert code == 4503 and error["what"] == "there are 3 relayed streams, as many as there may be"
        open_[0][0].close()
        assert open_[0][1].recv(1) == b""
        with relay.connect(listener) as (client, there):
            there.sendall(b"x")
            assert client.recv(SOON) == b"x"


def test_a_client_that_does_not_read_is_cut_and_costs_a_bounded_amount(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastflight.gateway.http.connections.STALL_SECONDS", 2.0)
    with serving() as relay, relay.connect(listener) as (reader, beside), ExitStack() as parts:
        parts.enter_context(opened(relay.gateway, relay.path(listener)))
        there, _ = listener.accept()
        parts.enter_context(there)
        sent = 0
        with pytest.raises(ConnectionError):
            while sent < MUCH:
                sent += there.send(bytes(1 << 16))
        assert MIB // 8 < sent < MUCH // 2
        assert relay.app.connections.not_read == 1
        beside.sendall(b"x")
        assert reader.recv(SOON) == b"x"


def test_a_target_that_does_not_read_pauses_the_client_and_is_given_up(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "STALL_SECONDS", 2.0)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    with serving() as relay, relay.connect(listener) as (client, there):
        frame = Frame(Opcode.BINARY, bytes(1 << 16)).serialize(mask=True)
        sent = 0
        while sent < MUCH and select.select([], [client.socket], [], 0.5)[1]:
            sent += client.socket.send(frame[sent % len(frame) :])
        assert sent < MUCH // 2
        assert relay.ended()["ended"] == "took nothing for 2 s"
        assert len(received(there, MUCH)) < sent


def test_a_client_that_waits_for_a_slow_target_is_not_taken_for_gone(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer to a ping is behind its messages."""
    monkeypatch.setattr("fastflight.gateway.http.listening.PING_SECONDS", 0.1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    with serving() as relay, relay.connect(listener, ping_interval=None) as (client, there):
        sending = threading.Thread(target=lambda: [client.send(bytes(MIB)) for _ in range(MUCH // MIB)])
        sending.start()
        sending.join(1.0)
        assert sending.is_alive()
        assert len(received(there, MUCH)) == MUCH
        sending.join()


def test_a_message_may_come_in_any_number_of_fragments(relay: RelayGateway, listener: socket.socket) -> None:
    content = bytes(range(100))
    with accepted(relay.gateway, relay.path(listener)) as raw:
        there, _ = listener.accept()
        with there:
            raw.sendall(frame(BINARY, final=False) + frame(CONTINUATION, final=False) * 10_000)
            raw.sendall(b"".join(frame(CONTINUATION, content[at : at + 1], final=False) for at in range(len(content))))
            raw.sendall(frame(CONTINUATION))
            assert received(there, len(content)) == content


def test_times_are_logged_when_asked_for(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_module, "READS", 2)
    with serving(timing=True) as relay, relay.connect(listener) as (client, there):
        for _ in range(4):
            there.sendall(b"x" * 10)
            assert client.recv(SOON) == b"x" * 10
        client.close()
        assert there.recv(1) == b""
        lines = [entry for entry in relay.log if entry["event"] == "relay"]
    assert [(line["reads"], line["bytes"], line["total"]) for line in lines] == [(2, 20, 20), (2, 20, 40)]
    for line, name in itertools.product(lines, ("read_us", "pack_us", "send_us")):
        assert line[name] >= 0 and line["log_level"] == "debug"


def test_the_end_of_the_gateway_ends_streams_with_the_reason(listener: socket.socket) -> None:
    with serving() as relay, relay.connect(listener) as (client, there):
        closing_ = threading.Thread(target=relay.gateway.close)
        closing_.start()
        code, error = error_of(client)
        assert code == 4503 and error["what"] == "the server shuts down"
        assert there.recv(1) == b""
        closing_.join()
