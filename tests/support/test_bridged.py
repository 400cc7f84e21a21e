"""The bridge that tests put in front of a device."""

import socket
import threading

import pytest

from fastflight.bridge import Bridge, Ports
from fastflight.errors import TransportError
from tests.support import bridged


def test_gives_ports_that_reach_the_device_and_leaves_nothing() -> None:
    with bridged.bridged("sim:") as ports:
        assert set(ports) == {"socket", "rfc2217", "viewers"}
        host, port = ports["socket"].removeprefix("socket://").split(":")
        with socket.create_connection((host, int(port)), timeout=20) as client:
            client.sendall(b"\r\x03\x01")
            heard = b""
            while b"raw REPL; CTRL-B to exit\r\n>" not in heard:
                heard += client.recv(1024)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=20)
    assert not [thread for thread in threading.enumerate() if "bridge in front" in thread.name]


def test_a_bridge_that_cannot_listen_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(bridged, "PORTS", Ports(socket=taken.getsockname()[1]))
        with pytest.raises(TransportError, match="cannot listen"), bridged.bridged("sim:"):
            pass


def test_what_goes_wrong_at_its_end_is_not_kept_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = Bridge.aclose

    async def fails(bridge: Bridge) -> None:
        await closed(bridge)
        raise TransportError("it could not be closed")

    monkeypatch.setattr(Bridge, "aclose", fails)
    with pytest.raises(TransportError, match="could not be closed"), bridged.bridged("sim:"):
        pass
    with pytest.raises(ValueError, match="in the block"), bridged.bridged("sim:"):
        raise ValueError("in the block")
