"""A device's bare line and its traffic: lent to tools, seen by listeners, read while nobody has it."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fastflight.concurrency import Shards
from fastflight.device import Device, Inventory
from fastflight.errors import BusyError, Stopped, TransportClosed, TransportError
from fastflight.gap import Gap
from fastflight.transport.chunk_buffer import Chunk, TapReader
from fastflight.transport.serial import SerialAddress
from fastflight.transport.socket import SocketAddress
from fastflight_benchmark.printing_boards import Options, printing
from tests.support.waiting import aread_until, until

SOON = 60.0


@contextmanager
def inventory(url: str) -> Iterator[Device]:
    shards = Shards(2)
    with Inventory({"demo": url}, shards=shards) as opened, shards:
        yield opened.device("demo")


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Device]:
    with inventory(f"sim:?files={tmp_path}&telemetry=0") as device:
        yield device


def said(reader: TapReader, mark: bytes) -> bytes:
    """What the device said up to `mark`."""
    data = b""
    for item in reader:
        assert not isinstance(item, Gap)
        if item.direction == "rx":
            data += item.data
        if mark in data:
            break
    return data


def test_a_tool_has_the_bare_line_and_others_are_told_so(demo: Device) -> None:
    with demo.line("a tool", timeout=0) as port:
        asyncio.run(port.awrite(b"\r\x03", SOON))
        assert asyncio.run(port.aread(SOON))
        with pytest.raises(BusyError) as raised, demo.lease("a reader", timeout=0):
            pass
        assert raised.value.holder == "a tool"
    with demo.lease("a reader", timeout=0) as session:
        assert session.exec("print(1)").stdout == b"1\r\n"


async def test_what_was_known_of_the_board_is_forgotten_after_a_tool_had_it(demo: Device) -> None:
    with demo.lease("a reader") as session:
        known = session.capabilities
    async with demo.aline("a tool", timeout=0) as port:
        # Left in the raw REPL: nothing may be taken for granted.
        await port.awrite(b"\r\x03\x01", SOON)
        await aread_until(lambda: port.aread(SOON), b"raw REPL")
    with demo.lease("a reader") as session:
        assert session.capabilities is not known
        assert session.exec("print(2)").stdout == b"2\r\n"


def test_a_line_that_fails_under_a_tool_is_opened_anew(demo: Device) -> None:
    with pytest.raises(TransportClosed), demo.line("a tool") as port:
        port.close()
        asyncio.run(port.aread(SOON))
    assert not demo.is_open
    with demo.lease("a reader") as session:
        assert session.exec("print(3)").stdout == b"3\r\n"


def test_requests_are_seen_by_those_that_ask_for_them(demo: Device) -> None:
    whole = demo.tap.whole().reader()
    with demo.listen() as reader:
        with demo.lease("a reader", timeout=0) as session:
            session.exec("print('seen')")
        assert b"seen" in said(whole, b"seen\r\n")
        assert not any(isinstance(item, Chunk) and b"seen" in item.data for item in reader.rest())


def test_output_is_read_while_nobody_has_the_device_and_a_request_comes_in_between(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("import time\nfor i in range(3):\n print('row', i)\n")
    with inventory(f"sim:?files={tmp_path}&telemetry=0") as demo, demo.listen() as reader:
        said(reader, b"row 2\r\n")
        assert demo.is_open
        assert demo.holder is None
        with demo.lease("a reader", timeout=0) as session:
            assert session.exec("print(4)").stdout == b"4\r\n"
        with demo.line("a tool", timeout=0) as port:
            asyncio.run(port.awrite(b"print('left'+'over')\r", SOON))
        said(reader, b"leftover\r\n")


def test_no_byte_is_lost_where_reading_changes_hands() -> None:
    """A device that counts without end; leases take a part here and there, the pump the rest."""
    with counting() as url, inventory(url) as demo, demo.listen() as reader:
        parts: list[bytes] = []

        def collect() -> None:
            for item in reader:
                assert isinstance(item, Chunk)
                parts.append(item.data)
                if len(parts) >= 400:
                    return

        collecting = threading.Thread(target=collect)
        collecting.start()

        async def lease() -> None:
            async with demo.aline("a task", timeout=0) as port:
                await port.aread(SOON)

        while collecting.is_alive():
            with demo.line("a thread", timeout=0) as port:
                asyncio.run(port.aread(SOON))
            asyncio.run(lease())
        collecting.join()
        numbers = [int(number) for number in re.findall(rb"\d+", b"".join(parts))][:-1]
        assert numbers == list(range(len(numbers)))


@contextmanager
def counting() -> Iterator[str]:
    """The URL of a device that says 0, 1, 2 and so on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def count() -> None:
            stream, _ = listener.accept()
            number = 0
            with stream:
                try:
                    while True:
                        stream.sendall(b"%d\n" % number)
                        number += 1
                except OSError:
                    return

        thread = threading.Thread(target=count)
        thread.start()
        yield f"socket://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def test_a_line_that_is_lost_is_opened_again_for_those_that_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastflight.device.listening.FIRST_RETRY_SECONDS", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with inventory(f"socket://127.0.0.1:{listener.getsockname()[1]}") as demo, demo.listen() as reader:
            for words in (b"first life\n", b"second life\n"):
                stream, _ = listener.accept()
                with stream:
                    stream.sendall(words)
                    said(reader, words)
                    assert demo.trouble == ""


@dataclass
class PluggedPort:
    device: str
    serial_number: str
    location: str | None = None


class Cable:
    """A board on a pseudo-terminal that can be pulled and plugged in again, under another name."""

    def __init__(self) -> None:
        self.ports: list[PluggedPort] = []
        self._descriptors: list[int] = []

    def plug_in(self, name: Path, serial_number: str) -> None:
        tty = pytest.importorskip("tty", reason="only a pseudo-terminal can be pulled")
        self.board, port = self._descriptors = [*os.openpty()]
        tty.setraw(port)
        name.symlink_to(os.ttyname(port))
        self.ports = [PluggedPort(str(name), serial_number)]

    def pull(self) -> None:
        for port in self.ports:
            os.unlink(port.device)
        self.ports = []
        for descriptor in self._descriptors:
            os.close(descriptor)


def test_a_board_that_is_pulled_comes_back_under_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastflight.device.listening.FIRST_RETRY_SECONDS", 3600.0)
    monkeypatch.setattr("fastflight.device.listening.LOCAL_RETRY_SECONDS", 0.01)
    cable, shards, first = Cable(), Shards(1), tmp_path / "ttyACM0"
    cable.plug_in(first, "E66141")
    address = SerialAddress(f"serial://{first}", str(first), ports=lambda: list(cable.ports))
    with Inventory({"demo": ""}, shards=shards, parse=lambda _: address) as inventory, shards:
        demo = inventory.device("demo")
        with demo.listen() as reader:
            until(lambda: demo.is_open and demo.address != address)
            os.write(cable.board, b"first")
            said(reader, b"first")
            cable.pull()
            until(lambda: "serial_number=E66141" in demo.trouble)
            cable.plug_in(first, "another board")
            outages = demo.outages
            until(lambda: demo.outages > outages + 1)
            assert not demo.is_open
            cable.pull()
            cable.plug_in(tmp_path / "ttyACM1", "E66141")
            until(lambda: demo.is_open)
            os.write(cable.board, b"back")
            said(reader, b"back")
            cable.pull()


def test_a_line_that_found_no_descriptor_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusals = [OSError(errno.EMFILE, "too many open files")]
    started = subprocess.Popen

    def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        if refusals:
            raise refusals.pop()
        return started(command, **options)

    monkeypatch.setattr("fastflight.device.listening.FIRST_RETRY_SECONDS", 0.01)
    monkeypatch.setattr("fastflight.transport.sim.subprocess.Popen", start)
    (tmp_path / "main.py").write_text("print('here')\n")
    with inventory(f"sim:?files={tmp_path}&telemetry=0") as demo, demo.listen() as reader:
        said(reader, b"here\r\n")
    assert demo.outages == 1


def test_a_request_does_not_wait_for_a_line_that_is_tried_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = threading.Event()
    with inventory("socket://127.0.0.1:9") as demo:
        address = demo.address
        assert isinstance(address, SocketAddress)
        opened = address.aopen

        async def refuse(_: SocketAddress, timeout: float) -> object:
            try:
                return await opened(timeout)
            finally:
                tried.set()

        monkeypatch.setattr(SocketAddress, "aopen", refuse)
        with demo.listen():
            assert tried.wait(SOON)
            with pytest.raises(TransportError, match="cannot connect"), demo.lease("a reader", timeout=0):
                pass
            assert "cannot connect" in demo.trouble


def test_listeners_end_with_the_device_and_none_begin_later(tmp_path: Path) -> None:
    with inventory(f"sim:?files={tmp_path}&telemetry=0") as demo:
        reader = demo.tap.reader()
    assert list(reader) == []
    with pytest.raises(Stopped), demo.listen():
        pass


def test_many_boards_are_heard_without_a_thread_more() -> None:
    shards, boards = Shards(2), 100
    with printing(Options(boards, rows_per_second=20.0)) as fleet:
        urls = {f"board-{number}": url for number, url in enumerate(fleet.urls)}
        with Inventory(urls, shards=shards) as opened, shards, ExitStack() as listening:
            before = threading.active_count()
            readers = [listening.enter_context(device.listen()) for device in opened.devices()]
            heard = [said(reader, b'"n": 4, ') for reader in readers]
            assert threading.active_count() == before
        for number, words in enumerate(heard):
            # One read may bring several rows.
            rows = [json.loads(line) for line in words.splitlines()[:5]]
            assert [(row["board"], row["n"]) for row in rows] == [(number, n) for n in range(5)]
