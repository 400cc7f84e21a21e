"""Connections whose peer has vanished: noticed by the system, and told as lost."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from fastflight.errors import TransportClosed, TransportError, TransportTimeout
from fastflight.transport import Address, Port, parse_url
from fastflight.transport.socket import KEEPALIVE, USER_TIMEOUT_MS, SocketPort
from tests.support.ports import open_port

from .peers import socket_peer
from .rfc2217_peers import rfc2217_peer

SOON = 10.0
SHORT = 0.05
USER_TIMEOUT = getattr(socket, "TCP_USER_TIMEOUT", None)


def noticed(port: Port) -> None:
    """The system asks a peer that is silent, and gives up one that does not answer."""
    stream = port._transport.get_extra_info("socket")
    assert stream.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    wanted = [*KEEPALIVE, ("TCP_USER_TIMEOUT", USER_TIMEOUT_MS)]
    for name, value in wanted:
        if hasattr(socket, name):
            assert stream.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) == value


@pytest.mark.parametrize("peer", [socket_peer, rfc2217_peer])
def test_a_peer_that_vanishes_is_noticed_within_a_minute(
    peer: Callable[[bool], AbstractContextManager[Address]],
) -> None:
    with peer(True) as address:
        port = open_port(address, SOON)
        assert isinstance(port.port, SocketPort)
        noticed(port)
        port.close()


@pytest.mark.skipif(USER_TIMEOUT is None, reason="only Linux limits how long a peer may take nothing")
def test_a_connection_that_the_system_gives_up_is_lost_and_not_silent() -> None:
    with socket_peer(echo=False) as address:
        port = open_port(address, SOON)
        assert isinstance(port.port, SocketPort) and USER_TIMEOUT is not None
        # The peer takes nothing more: as far as the system can tell it has gone.
        with pytest.raises(TransportTimeout, match="took no byte"):
            while True:
                port.write(bytes(1 << 20), 0.05)
        port._transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, USER_TIMEOUT, 200)
        with pytest.raises(TransportClosed, match="the connection was lost"):
            port.read(SOON)
        port.close()


def test_many_rfc2217_servers_that_do_not_answer_take_no_thread_on_a_loop() -> None:
    """A server tries each device that is missing again and again; threads that wait would be missed elsewhere."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as mute:
        url = f"rfc2217://127.0.0.1:{mute.getsockname()[1]}"
        before = threading.active_count()

        async def listen() -> int:
            with pytest.raises(TransportError):
                await asyncio.gather(*(parse_url(url).aopen(SHORT) for _ in range(20)))
            return threading.active_count()

        assert asyncio.run(listen()) == before
