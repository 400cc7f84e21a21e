"""WebSockets of clients that send what they like and do not read, frame by frame."""

from __future__ import annotations

import pytest

from fastflight.gateway import Gateway, listen
from fastflight.gateway.http.connections import Connections
from tests.support.waiting import read_until, until

from .conftest import TrialGateway
from .raw_websocket import CLOSE, accepted, frame, opened

PAGE = "/ws/fleet"


def test_they_count_as_connections(running: TrialGateway) -> None:
    connections = Connections(max_connections=1)
    with listen(running.app, running.shard, 0, connections=connections) as gateway:
        with accepted(gateway, PAGE) as raw:
            assert connections.open == 1
            with opened(gateway, PAGE) as second:
                assert read_until(lambda: second.recv(65536), b"too many connections").startswith(b"HTTP/1.1 503 ")
            raw.sendall(frame(CLOSE, b"\x03\xe8"))
            while raw.recv(65536):
                pass
            until(lambda: connections.open == 0)


REFUSED = {
    "a long header": b"x: " + b"y" * 9000 + b"\r\n",
    "chunks": b"transfer-encoding: chunked\r\n",
}


@pytest.mark.parametrize("head", REFUSED.values(), ids=REFUSED.keys())
def test_a_handshake_that_cannot_be_read_is_refused(listening: Gateway, head: bytes) -> None:
    with opened(listening, PAGE, head=head) as raw:
        said = b"".join(iter(lambda: raw.recv(65536), b""))
    assert said.startswith(b"HTTP/1.1 400 ") and b"not a handshake of a WebSocket" in said


def test_cookies_of_other_servers_are_no_hindrance(listening: Gateway) -> None:
    with accepted(listening, PAGE, head=b"cookie: " + b"x" * 20_000 + b"\r\n"):
        pass
