"""Our client before other people's servers, and other people's clients before our server."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import serial
import serialx
from serial import rfc2217

from fastflight.errors import TransportError, TransportTimeout
from fastflight.protocol.rfc2217 import (
    Flow,
    Purge,
)
from fastflight.transport import LineSettings, ModemLines, parse_url
from fastflight.transport.rfc2217 import Rfc2217Port
from tests.support.bridged import bridged
from tests.support.ports import open_port
from tests.support.targets import TargetMissing
from tests.transport.port_reading import PATIENCE, read_exactly
from tests.transport.rfc2217_peers import Rfc2217Peer, running_peer
from tests.transport.ser2net import ser2net

SHORT = 0.05

# All that telnet could mistake: every byte, each command's beginning, line ends, and runs of 0xFF.
TRYING = bytes(range(256)) + b"\xff\xf0\xff\xfa\x2c\xff\xff\xff\r\0\r\n\r" + b"\xff" * 1000


class PortManager(threading.Thread):
    """pyserial's server, for one client, in front of a port that sends back what it gets."""

    def __init__(self) -> None:
        super().__init__(name="PortManager")
        self.serial = serial.serial_for_url("loop://", timeout=None)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        host, port = self._listener.getsockname()
        return f"rfc2217://{host}:{port}"

    def run(self) -> None:
        with self._listener:
            self._connection, _ = self._listener.accept()
        manager = rfc2217.PortManager(self.serial, self)
        reader = threading.Thread(target=self._read, args=(manager,))
        reader.start()
        with self._connection:
            while data := self._connection.recv(1024):
                self.serial.write(b"".join(manager.filter(data)))
            self.serial.cancel_read()
            reader.join()
        self.serial.close()

    def write(self, data: bytes) -> None:
        """What the manager sends."""
        with self._lock:
            self._connection.sendall(data)

    def _read(self, manager: rfc2217.PortManager) -> None:
        while data := self.serial.read(1):
            data += self.serial.read(self.serial.in_waiting)
            self.write(b"".join(manager.escape(data)))


@pytest.fixture
def manager() -> Iterator[PortManager]:
    manager = PortManager()
    manager.start()
    yield manager
    manager.join()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The URL of a ser2net."""
    with ExitStack() as stack:
        try:
            url = stack.enter_context(ser2net(tmp_path))
        except TargetMissing as missing:
            if os.environ.get("CI", "").lower() not in ("", "0", "false"):
                pytest.fail(str(missing))
            pytest.skip(str(missing))
        yield url


@pytest.fixture
def peer() -> Iterator[Rfc2217Peer]:
    with running_peer() as peer:
        yield peer


def opened(url: str) -> Rfc2217Port:
    port = open_port(parse_url(url), PATIENCE)
    assert isinstance(port.port, Rfc2217Port)
    return port


def test_pyserials_server(manager: PortManager) -> None:
    manager.serial.baudrate = 19200
    port = opened(manager.url)
    try:
        assert port.settings == LineSettings(19200)
        asyncio.run(port.aconfigure(LineSettings(57600, 7, "E", 2.0), PATIENCE))
        assert (manager.serial.baudrate, manager.serial.bytesize) == (57600, 7)
        assert (manager.serial.parity, manager.serial.stopbits) == ("E", 2)
        port.write(TRYING, PATIENCE)
        assert read_exactly(port, len(TRYING)) == TRYING
        # A loop: what we drive is what we see.
        asyncio.run(port.aassign(PATIENCE, dtr=True, rts=False))
        assert asyncio.run(port.amodem(PATIENCE)) == ModemLines(dsr=True, cd=True)
        asyncio.run(port.aassign(PATIENCE, dtr=False, rts=True, sending_break=True))
        assert asyncio.run(port.amodem(PATIENCE)) == ModemLines(cts=True, cd=True)
        asyncio.run(port.apurge(PATIENCE, received=True, unsent=True))
    finally:
        port.close()


def test_pyserials_server_with_options_in_the_url(manager: PortManager) -> None:
    port = opened(f"{manager.url}?baud=300&dtr=0&rts=0")
    port.close()
    assert manager.serial.baudrate == 300
    assert (manager.serial.dtr, manager.serial.rts) == (False, False)


def test_ser2net(server: str) -> None:
    port = opened(server)
    try:
        assert port.settings == LineSettings(9600)
        asyncio.run(port.aconfigure(LineSettings(57600, 7, "E", 2.0), PATIENCE))
        assert port.settings == LineSettings(57600, 7, "E", 2.0)
        asyncio.run(port.aconfigure(LineSettings(115200), PATIENCE))
        port.write(TRYING, PATIENCE)
        assert read_exactly(port, len(TRYING)) == TRYING
        assert asyncio.run(port.amodem(PATIENCE)) == ModemLines()
        asyncio.run(port.apurge(PATIENCE, received=True, unsent=True))
    finally:
        port.close()


# pyserial 3.5 starts its reader by calls that Python has given up.
@pytest.mark.filterwarnings("ignore:set(Daemon|Name):DeprecationWarning")
def test_pyserials_client_through_a_bridge_in_front_of_ser2net(server: str) -> None:
    with bridged(server) as ports, serial.serial_for_url(ports["rfc2217"], timeout=PATIENCE) as client:
        client.write(TRYING)
        assert client.read(len(TRYING)) == TRYING


def test_ser2net_answers_nothing_about_lines_that_a_pseudo_terminal_does_not_have(server: str) -> None:
    port = opened(server)
    try:
        with pytest.raises(TransportTimeout, match=r"did not answer dtr=True$"):
            asyncio.run(port.aassign(SHORT, dtr=True))
        port.write(b"still here", PATIENCE)
        assert read_exactly(port, 10) == b"still here"
    finally:
        port.close()


def test_ser2net_holds_its_port_for_one(server: str) -> None:
    port = opened(server)
    try:
        with pytest.raises(TransportError):
            opened(server)
    finally:
        port.close()


@pytest.mark.filterwarnings("ignore:set(Daemon|Name):DeprecationWarning")
def test_pyserials_client(peer: Rfc2217Peer) -> None:
    client = serial.serial_for_url(f"rfc2217://{peer.address}", baudrate=230400, parity="E", timeout=PATIENCE)
    try:
        assert peer.in_force["baud"] == 230400
        assert peer.in_force["parity"] == "E"
        assert peer.in_force["flow"] == Flow.NONE
        assert [event for event in peer.asked if isinstance(event, Purge)] == [Purge(True, False), Purge(False, True)]
        client.write(TRYING)
        assert client.read(len(TRYING)) == TRYING
        assert (client.cts, client.dsr, client.ri, client.cd) == (True, False, False, True)
        client.dtr, client.rts, client.break_condition = False, False, True
        assert peer.in_force["dtr"] is False
        assert peer.in_force["rts"] is False
        assert peer.in_force["sending_break"] is True
        client.bytesize = 7
        assert peer.in_force["data_bits"] == 7
    finally:
        client.close()


def test_serialxs_client(peer: Rfc2217Peer) -> None:
    """It waits for both masks to be acknowledged."""
    with serialx.serial_for_url(f"rfc2217://{peer.address}", baudrate=230400) as client:
        assert peer.in_force["baud"] == 230400
        client.write(TRYING)
        assert client.readexactly(len(TRYING)) == TRYING
