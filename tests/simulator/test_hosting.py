"""A board that outlives its hosts: behind a listening socket, and as a serial port of this computer."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import serial

from tests.support.waiting import ByteReader

from .conftest import PATIENCE

PROMPT = b">>> "
RAW_PROMPT = b"raw REPL; CTRL-B to exit\r\n>"
HAS_TERMINALS = hasattr(os, "openpty")
LISTENING = ("fastflight.simulator", "--listen", "127.0.0.1:0")
SERIAL = ("fastflight_benchmark.serial_board",)


class Hosted:
    """A board that was started by somebody who is not its host."""

    def __init__(self, files: Path, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", *options, "--files", str(files), "--telemetry", "0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.address = self.line()

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def ask(self, line: str) -> str:
        """What the board answers to a line of control."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        return self.line()

    def connect(self) -> Host:
        if self.address.startswith("/"):
            return Host(os.open(self.address, os.O_RDWR | os.O_NOCTTY))
        host, _, port = self.address.rpartition(":")
        return Host(socket.create_connection((host, int(port))).detach())

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.terminate()
        self.process.wait(PATIENCE)
        self.process.stdin.close()
        self.process.stdout.close()


class Host:
    """A program that has the board's line open."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._reader = ByteReader(self.more)

    def send(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.descriptor, data) :]

    def more(self) -> bytes:
        """What came, or nothing at its end."""
        ready, _, _ = select.select([self.descriptor], [], [], PATIENCE)
        assert ready, f"nothing came after {self._reader.rest!r}"
        try:
            return os.read(self.descriptor, 1 << 20)
        except OSError:
            return b""

    def read_until(self, mark: bytes) -> bytes:
        return self._reader.read_until(mark)

    def exec(self, code: str) -> bytes:
        self.send(b"\r\x03\x03\r\x01")
        self.read_until(RAW_PROMPT)
        self.send(code.encode() + b"\x04")
        answer = self.read_until(b"\x04\x04>")
        return answer.removeprefix(b"OK").removesuffix(b"\x04\x04>")

    def close(self) -> None:
        os.close(self.descriptor)


@pytest.fixture(params=[LISTENING, pytest.param(SERIAL, marks=pytest.mark.skipif(not HAS_TERMINALS, reason="none"))])
def board(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Hosted]:
    hosted = Hosted(tmp_path / "board", *request.param, "--control")
    yield hosted
    hosted.close()


def test_it_lives_on_from_host_to_host(board: Hosted) -> None:
    for number in range(20):
        host = board.connect()
        assert host.exec(f"x = {number}") == b""
        host.close()
        host = board.connect()
        assert host.exec("print(x)") == f"{number}\r\n".encode()
        host.close()


def test_a_host_that_leaves_in_mid_output_leaves_nothing_to_the_next(board: Hosted) -> None:
    host = board.connect()
    host.exec("x = 1")
    host.send(b"while True: print('spam ' * 100)\x04")
    host.read_until(b"spam")
    host.close()
    host = board.connect()
    host.send(b"\x03\x03")
    host.read_until(b"KeyboardInterrupt")
    assert host.exec("print(x)").endswith(b"1\r\n")
    host.close()


def test_bulk_both_ways(board: Hosted) -> None:
    host = board.connect()
    data = bytes(range(256)) * 4000
    host.exec("import sys, micropython")
    code = f"micropython.kbd_intr(-1)\nprint('go')\nb = bytearray({len(data)})\nsys.stdin.buffer.readinto(b)\n"
    host.send((code + "micropython.kbd_intr(3)\nsys.stdout.buffer.write(b)\nprint('end')\n").encode() + b"\x04")
    host.read_until(b"go\r\n")
    host.send(data)
    assert host.read_until(b"end\r\n") == data + b"end\r\n"
    host.close()


def test_faults_on_request(board: Hosted) -> None:
    host = board.connect()
    host.exec("pass")
    assert board.ask("lose-rx=7") == "ok"
    host.send(b"print(123456)\x04")
    assert host.read_until(b"\x04\x04>") == b"OK23456\r\n\x04\x04>"
    assert board.line().startswith("struck lose-rx=")
    host.close()


def test_what_control_does_not_understand_it_says(board: Hosted) -> None:
    assert board.ask("nonsense=1").startswith("error unknown fault 'nonsense'")


def test_a_stall_ends_on_request(board: Hosted) -> None:
    host = board.connect()
    host.exec("pass")
    assert board.ask("stall-after-tx=1") == "ok"
    host.send(b"print(1)\x04")
    host.read_until(b"O")
    assert board.line().startswith("struck stall-after-tx=")
    assert board.ask("") == "ok"
    host.read_until(b'Type "help()" for more information.\r\n' + PROMPT)
    assert host.exec("print(2)") == b"2\r\n"
    host.close()


def test_it_ends_with_its_control(board: Hosted) -> None:
    host = board.connect()
    host.exec("pass")
    assert board.process.stdin is not None
    board.process.stdin.close()
    assert board.process.wait(PATIENCE) == 0
    assert host.more() == b""
    host.close()


def test_a_second_client_is_hung_up_on(tmp_path: Path) -> None:
    board = Hosted(tmp_path / "board", *LISTENING)
    first = board.connect()
    first.exec("pass")
    second = board.connect()
    assert second.more() == b""
    assert first.exec("print(1)") == b"1\r\n"
    for host in (first, second):
        host.close()
    board.close()


@pytest.mark.skipif(not HAS_TERMINALS, reason="there are no pseudo-terminals")
def test_a_serial_port_is_there_for_pyserial(tmp_path: Path) -> None:
    board = Hosted(tmp_path / "board", *SERIAL, "--baud", "921600")
    for _ in range(2):
        with serial.Serial(board.address, 921600, timeout=PATIENCE) as port:
            port.write(b"\r\x03\x03\r\x01")
            assert port.read_until(RAW_PROMPT).endswith(RAW_PROMPT)
            port.write(b"print('\xc3\xa4')\x04")
            assert port.read_until(b"\x04>") == b"OK\xc3\xa4\r\n\x04\x04>"
    board.close()


def test_ctrl_c_in_its_own_terminal_ends_it(tmp_path: Path) -> None:
    board = Hosted(tmp_path / "board", *LISTENING)
    host = board.connect()
    host.exec("pass")
    host.send(b"while True: pass\x04")
    host.read_until(b"OK")
    board.process.send_signal(signal.SIGINT)
    assert board.process.wait(PATIENCE) == 0
    host.close()
    board.close()
