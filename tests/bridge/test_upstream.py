"""A line that outlives its losses: sockets whose peer goes, serial ports that are pulled and come back elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import tty
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fastflight.bridge.line import BridgedLine, State
from fastflight.bridge.upstream import Backoff, Upstream
from fastflight.errors import TransportClosed
from fastflight.transport import SerialControl, parse_url
from fastflight.transport.serial import SerialAddress
from tests.bridge.line_watcher import watched

# Far apart: whatever comes back in a test comes because it was asked for.
PATIENT = 3600.0


def play(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scene)


@contextlib.contextmanager
def listening() -> Iterator[tuple[socket.socket, str]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)
        host, port = listener.getsockname()
        yield listener, f"socket://{host}:{port}"


async def accepted(listener: socket.socket) -> socket.socket:
    peer, _ = await asyncio.to_thread(listener.accept)
    return peer


def patient(url: str) -> Upstream:
    return Upstream(parse_url(url), backoff=Backoff(PATIENT, PATIENT))


def test_is_a_line() -> None:
    line: BridgedLine = patient("socket://127.0.0.1:1")
    assert line.name == "socket://127.0.0.1:1"
    assert line.state == State("connecting")
    assert Upstream(parse_url("sim:"), name="weather").name == "weather"


def test_knows_the_control_lines_as_its_url_has_them_opened() -> None:
    driven = Upstream(parse_url("serial:///dev/ttyUSB0?dtr=0&rts=0")).driven
    assert (driven.dtr, driven.rts) == (False, False)


def test_carries_bytes_both_ways_and_shows_them_to_the_tap() -> None:
    async def scene() -> None:
        with listening() as (listener, url):
            async with watched(patient(url)) as device:
                with await accepted(listener) as peer:
                    reader = device.line.tap.reader()
                    await device.becomes("open")
                    await device.line.write(b"ping")
                    assert peer.recv(4) == b"ping"
                    peer.sendall(b"pong")
                    assert await device.read_until(b"pong") == b"pong"
                    seen = [item[2:4] for item in await reader.atake(0)]
                    assert seen == [("tx", b"ping"), ("rx", b"pong")]

    play(scene())


def test_a_peer_that_goes_is_told_and_a_peer_that_comes_back_is_found() -> None:
    async def scene() -> None:
        with listening() as (listener, url):
            async with watched(patient(url)) as device:
                (await accepted(listener)).close()
                assert (await device.becomes("lost")).reason == "the device closed the line"
                with pytest.raises(TransportClosed, match="closed the line"):
                    await device.line.write(b"x")
                device.line.retry()
                with await accepted(listener) as peer:
                    await device.becomes("open")
                    peer.sendall(b"back")
                    await device.read_until(b"back")

    play(scene())


def test_attempts_go_on_until_somebody_listens() -> None:
    async def scene() -> None:
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            port = holder.getsockname()[1]
            async with watched(
                Upstream(parse_url(f"socket://127.0.0.1:{port}"), backoff=Backoff(0.001, 0.01))
            ) as device:
                for _ in range(8):
                    assert "cannot connect" in (await device.becomes("lost")).reason
                holder.listen()
                with (await asyncio.to_thread(holder.accept))[0]:
                    await device.becomes("open")

    play(scene())


def test_a_paused_line_keeps_what_came() -> None:
    async def scene() -> None:
        with listening() as (listener, url):
            async with watched(patient(url)) as device:
                with await accepted(listener) as peer:
                    await device.becomes("open")
                    device.line.pause()
                    reader = device.line.tap.reader()
                    peer.sendall(b"held")
                    # The read that was on its way is seen by the tap, and told to nobody yet.
                    await reader.atake(None)
                    assert not device.heard
                    device.line.resume()
                    await device.read_until(b"held")

    play(scene())


def test_a_write_waits_for_a_device_that_takes_nothing() -> None:
    data = bytes(range(256)) * 100_000

    async def scene() -> None:
        with listening() as (listener, url):
            async with watched(patient(url)) as device:
                with await accepted(listener) as peer:
                    await device.becomes("open")
                    reader = device.line.tap.reader()
                    writing = asyncio.ensure_future(device.line.write(data))
                    await reader.atake(None)
                    assert not writing.done()
                    received = await asyncio.to_thread(lambda: b"".join(iter_received(peer, len(data))))
                    await writing
                    assert received == data

    play(scene())


def iter_received(peer: socket.socket, count: int) -> Iterator[bytes]:
    while count:
        data = peer.recv(65536)
        count -= len(data)
        yield data


def test_a_write_ends_when_the_line_is_lost() -> None:
    async def scene() -> None:
        with listening() as (listener, url):
            async with watched(patient(url)) as device:
                peer = await accepted(listener)
                await device.becomes("open")
                reader = device.line.tap.reader()
                writing = asyncio.ensure_future(device.line.write(b"x" * 50_000_000))
                await reader.atake(None)
                peer.close()
                with pytest.raises(TransportClosed):
                    await writing
                await device.becomes("lost")

    play(scene())


def test_cancelled_while_opening_nothing_is_left() -> None:
    async def scene(turns: int) -> None:
        with listening() as (_, url):
            async with watched(patient(url)):
                for _ in range(turns):
                    await asyncio.sleep(0)

    for turns in (0, 1, 2, 3, 10, 100):
        play(scene(turns))


@dataclass
class FoundPort:
    device: str
    serial_number: str | None
    location: str | None = None


class Cable:
    """A board on a pseudo-terminal that can be pulled and plugged in again, under the name that the system gives."""

    def __init__(self) -> None:
        self.ports: list[FoundPort] = []
        self._descriptors: list[int] = []

    def plug_in(self, serial_number: str) -> str:
        self.board, port = os.openpty()
        tty.setraw(port)
        name = os.ttyname(port)
        self._descriptors = [self.board, port]
        self.ports.append(FoundPort(name, serial_number))
        return name

    def pull(self) -> None:
        self.ports.clear()
        while self._descriptors:
            os.close(self._descriptors.pop())

    def address(self, name: str) -> SerialAddress:
        return SerialAddress(f"serial://{name}", name, ports=lambda: list(self.ports))


@pytest.fixture
def cable() -> Iterator[Cable]:
    cable = Cable()
    yield cable
    cable.pull()


def test_a_board_that_is_pulled_comes_back_under_another_name(cable: Cable) -> None:
    async def scene() -> None:
        first = cable.plug_in("E66141")
        line = Upstream(cable.address(first), backoff=Backoff(PATIENT, PATIENT))
        async with watched(line) as device:
            await device.becomes("open")
            assert isinstance(line.control, SerialControl)
            cable.pull()
            await device.becomes("lost")
            assert line.control is None

            with contextlib.closing(Placeholder()):
                cable.plug_in("another board")
                line.retry()
                assert "serial_number=E66141 is not there" in (await device.becomes("lost")).reason
                cable.pull()

                second = cable.plug_in("E66141")
                line.retry()
                await device.becomes("open")
                assert second != first
                os.write(cable.board, b"back")
                await device.read_until(b"back")
                await line.write(b"hello")
                assert await asyncio.to_thread(os.read, cable.board, 5) == b"hello"

    play(scene())


class Placeholder:
    """Takes the names of pseudo-terminals that became free, so that the next one gets another."""

    def __init__(self) -> None:
        self._held = [os.openpty() for _ in range(2)]

    def close(self) -> None:
        for pair in self._held:
            for descriptor in pair:
                os.close(descriptor)


def test_a_simulated_board_that_ends_is_started_again(tmp_path: Path) -> None:
    async def scene() -> None:
        address = parse_url(f"sim:?files={tmp_path}")
        async with watched(Upstream(address, backoff=Backoff(0.01, 0.02))) as device:
            await device.read_until(b">>> ")
            await device.ask(b"\x01", b">")
            await device.ask(b"\x04", b"raw REPL; CTRL-B to exit\r\n>")
            assert [state.phase for state in device.states] == ["open"]

    play(scene())
