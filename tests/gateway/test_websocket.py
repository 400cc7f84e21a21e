"""WebSockets of clients that send what they like and do not read, frame by frame."""

from __future__ import annotations

import json
import socket

import pytest

from fastflight.gateway import Gateway, listen
from fastflight.gateway.http.connections import Connections
from tests.support.waiting import read_until

from ..server.conftest import SOON
from .asgi_client import UPGRADE
from .conftest import TrialGateway

CONTINUATION, TEXT, CLOSE, PING, FINAL = 0, 1, 8, 9, 0x80
PINGS, PING_BYTES = 160_000, 125


def frame(kind: int, payload: bytes = b"", *, final: bool = True) -> bytes:
    return bytes((kind | (FINAL if final else 0), 0x80 | len(payload))) + bytes(4) + payload


def request(**request: object) -> bytes:
    return json.dumps({"type": "trial", "mode": "async", **request}).encode()


def opened(gateway: Gateway, path: str = "/ws/session", head: bytes = b"") -> socket.socket:
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.settimeout(SOON)
    raw.connect(("127.0.0.1", gateway.port))
    raw.sendall(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n".encode() + head + UPGRADE)
    return raw


def accepted(gateway: Gateway, head: bytes = b"") -> socket.socket:
    raw = opened(gateway, head=head)
    assert read_until(lambda: raw.recv(65536), b"\r\n\r\n").startswith(b"HTTP/1.1 101 ")
    return raw


def test_pings_of_one_that_does_not_read_are_not_kept(listening: Gateway) -> None:
    with accepted(listening) as raw:
        for start in range(0, PINGS, 1000):
            raw.sendall(b"".join(frame(PING, b"%0*d" % (PING_BYTES, start + number)) for number in range(1000)))
        last = b"%0*d" % (PING_BYTES, PINGS - 1)
        said, rest = 0, b""
        while last not in rest:
            data = raw.recv(1 << 20)
            said, rest = said + len(data), (rest + data)[-2 * PING_BYTES :]
    # The rest is what the system's own buffers hold.
    assert said < PINGS * PING_BYTES // 2


def test_one_that_sends_no_more_and_does_not_read_gives_its_device_back(running: TrialGateway) -> None:
    with listen(running.app, running.shard, 0) as gateway, accepted(gateway) as raw:
        raw.sendall(frame(TEXT, request(rows=100, big=True)))
        assert len(raw.recv(1 << 20))
        raw.shutdown(socket.SHUT_WR)
        assert running.trials.closed.wait(SOON)
        assert running.registry.wait_empty(SOON)


def test_a_message_may_come_in_any_number_of_fragments(listening: Gateway) -> None:
    content = request(rows=0)
    with accepted(listening) as raw:
        raw.sendall(frame(TEXT, final=False) + frame(CONTINUATION, final=False) * 10_000)
        raw.sendall(
            b"".join(frame(CONTINUATION, content[place : place + 1], final=False) for place in range(len(content)))
        )
        raw.sendall(frame(CONTINUATION))
        assert b'{"trailer": ' in read_until(lambda: raw.recv(65536), b'"rows": 0')


def test_they_count_as_connections(running: TrialGateway) -> None:
    connections = Connections(max_connections=1)
    with listen(running.app, running.shard, 0, connections=connections) as gateway:
        with accepted(gateway) as raw:
            assert connections.open == 1
            with opened(gateway) as second:
                assert read_until(lambda: second.recv(65536), b"too many connections").startswith(b"HTTP/1.1 503 ")
            raw.sendall(frame(TEXT, request(rows=0)))
            read_until(lambda: raw.recv(65536), b"\x03\xe8finished")
            raw.sendall(frame(CLOSE, b"\x03\xe8"))
            assert raw.recv(1) == b""
            assert connections.open == 0


REFUSED = {
    "a long header": b"x: " + b"y" * 9000 + b"\r\n",
    "chunks": b"transfer-encoding: chunked\r\n",
}


@pytest.mark.parametrize("head", REFUSED.values(), ids=REFUSED.keys())
def test_a_handshake_that_cannot_be_read_is_refused(listening: Gateway, head: bytes) -> None:
    with opened(listening, head=head) as raw:
        said = b"".join(iter(lambda: raw.recv(65536), b""))
    assert said.startswith(b"HTTP/1.1 400 ") and b"not a handshake of a WebSocket" in said


def test_cookies_of_other_servers_are_no_hindrance(listening: Gateway) -> None:
    with accepted(listening, head=b"cookie: " + b"x" * 20_000 + b"\r\n"):
        pass
