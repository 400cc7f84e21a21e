"""Calls to peers that are no server of ours: each ends with a typed error."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from hyperframe.frame import PingFrame

from fastflight.client.light.calls import Connection
from fastflight.errors import ProtocolError, TransportClosed, TransportError, TransportTimeout
from tests.support.refusals import refused


@contextmanager
def peer(behave: Callable[[socket.socket], None]) -> Iterator[str]:
    """Listen, treat the first connection as `behave` does, and wait for its end. Yields the location."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                behave(connection)
                with contextlib.suppress(OSError):
                    while connection.recv(65536):
                        pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"grpc://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            thread.join()


def call(location: str, timeout: float | None = None) -> list[bytes]:
    connection = Connection(location)
    try:
        return list(connection.call("DoAction", b"", (), timeout))
    finally:
        connection.close()


def test_nothing_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        location = f"grpc://127.0.0.1:{listener.getsockname()[1]}"
    with refused(TransportError, what="no server answers", where=location):
        call(location)


def test_a_peer_that_closes() -> None:
    with (
        peer(lambda connection: connection.shutdown(socket.SHUT_RDWR)) as location,
        refused(TransportClosed, where=location),
    ):
        call(location)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xff" * 100])
def test_a_peer_that_speaks_something_else(answer: bytes) -> None:
    with (
        peer(lambda connection: connection.sendall(answer)) as location,
        refused(ProtocolError, what="this is not a Flight server"),
    ):
        call(location)


def test_a_server_that_ends() -> None:
    """It says so (GOAWAY), and may send more before it closes, such as a PING."""

    def end(connection: socket.socket) -> None:
        server = H2Connection(H2Configuration(client_side=False))
        server.initiate_connection()
        server.close_connection()
        connection.sendall(server.data_to_send() + PingFrame(0, b"12345678").serialize())

    with peer(end) as location, refused(TransportClosed, what="the server went away", where=location):
        call(location)


def test_a_peer_that_is_silent() -> None:
    with peer(lambda connection: None) as location, refused(TransportTimeout):
        call(location, timeout=0.01)
