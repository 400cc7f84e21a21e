"""A simulated board for tests: the real child process, and a client that knows nothing but bytes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.waiting import ByteReader

# Nothing here takes long; what does not come in this time does not come.
PATIENCE = 60.0
TOKEN = "secret"
RAW_PROMPT = b"raw REPL; CTRL-B to exit\r\n>"


class BoardClient:
    """The transport's end of a board's line."""

    def __init__(self, files: Path, *options: str, program: tuple[str, ...] = ("-m", "fastflight.simulator")) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        listener.settimeout(PATIENCE)
        port = listener.getsockname()[1]
        command = [sys.executable, *program, "--connect", f"127.0.0.1:{port}", "--files", str(files)]
        self.process = subprocess.Popen(
            [*command, *options], env={**os.environ, "FASTFLIGHT_SIMULATOR_TOKEN": TOKEN}, stderr=subprocess.PIPE
        )
        try:
            self.link, _ = listener.accept()
        finally:
            listener.close()
        self.link.settimeout(PATIENCE)
        self.reader = ByteReader(lambda: self.link.recv(1 << 20))
        assert self.read_until(b"\n") == TOKEN.encode() + b"\n"

    def send(self, data: bytes) -> None:
        self.link.sendall(data)

    def read_until(self, mark: bytes) -> bytes:
        """Everything up to and including the next `mark`."""
        return self.reader.read_until(mark)

    def read_exactly(self, count: int) -> bytes:
        return self.reader.read_exactly(count)

    def enter_raw(self) -> None:
        self.send(b"\r\x03\x03\r\x01")
        self.read_until(RAW_PROMPT)

    def exec(self, code: str) -> tuple[bytes, bytes]:
        """Run code in the raw REPL: what it printed, and what it raised."""
        self.send(code.encode() + b"\x04")
        assert self.read_exactly(2) == b"OK"
        output, error = self.read_until(b"\x04")[:-1], self.read_until(b"\x04")[:-1]
        assert self.read_exactly(1) == b">"
        return output, error

    def close(self) -> int:
        """Hang up; gives how the process ended."""
        self.link.close()
        try:
            return self.process.wait(PATIENCE)
        finally:
            self.process.kill()
            assert self.process.stderr is not None
            self.process.stderr.close()


Start = Callable[..., BoardClient]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start boards on the folder `tmp_path / "board"`; all are gone at the end."""
    clients: list[BoardClient] = []

    def start(*options: str) -> BoardClient:
        files = tmp_path / "board"
        if "--telemetry" not in options:
            options = ("--telemetry", "0", *options)
        clients.append(BoardClient(files, *options))
        return clients[-1]

    yield start
    for client in clients:
        client.close()


@pytest.fixture
def raw(start: Start) -> BoardClient:
    """A quiet board in its raw REPL."""
    client = start()
    client.enter_raw()
    return client
