"""WebSockets of clients that send what they like and do not read, frame by frame."""

from __future__ import annotations

from contextlib import suppress

from fastflight.gateway import listen
from fastflight.gateway.http.connections import Connections
from tests.support.waiting import until

from .conftest import TrialGateway
from .raw_websocket import CLOSE, accepted, frame, opened

PAGE = "/ws/fleet"


def test_they_count_as_connections(running: TrialGateway) -> None:
    connections = Connections(max_connections=1)
    with listen(running.app, running.shard, 0, connections=connections) as gateway:
        with accepted(gateway, PAGE) as raw:
            assert connections.open == 1
            with suppress(ConnectionError), opened(gateway, PAGE) as second:
                assert second.recv(1) == b""
            raw.sendall(frame(CLOSE, b"\x03\xe8"))
            while raw.recv(65536):
                pass
            until(lambda: connections.open == 0)
