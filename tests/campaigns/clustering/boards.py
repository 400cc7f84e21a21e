"""A board behind a TCP port that outlives the servers, and finds out if two of them write to it at the same time.

Each connection gets a stream of numbered lines of its own, `CONNECTION:NUMBER:xxx`, as `faulting.talker` checks them.
A server that takes the board over opens a connection. From the first byte that it writes, the connections before it
belong to earlier owners: a byte that one of those still writes is an overlap.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"
# About 50 lines a second.
LINES, PERIOD_SECONDS = 2, 0.04
# Bytes that an earlier owner wrote before, and that were read only now.
ON_THE_WAY_SECONDS = 0.1
READ_BYTES = 4096


class _Connection:
    def __init__(self, line: socket.socket, number: int) -> None:
        self.line, self.number = line, number
        self.lines = 0
        self.unsent = b"\r\n"

    def print(self) -> None:
        for _ in range(LINES):
            self.unsent += f"{self.number}:{self.lines}:{'x' * (self.lines * 7919 % 60)}\r\n".encode()
            self.lines += 1
        try:
            self.unsent = self.unsent[self.line.send(self.unsent) :]
        except BlockingIOError:  # the server is stopped
            return


class CountingBoard:
    """The board, while its context lasts. `overlaps` says when an earlier owner wrote after a later one."""

    def __init__(self) -> None:
        self._listener = socket.create_server((HOST, 0))
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self.written = 0
        self.connections = 0
        self.overlaps: list[str] = []
        self._writer, self._since = 0, 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="board")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector, self._listener:
            selector.register(self._listener, selectors.EVENT_READ)
            due = time.monotonic()
            while not self._over.is_set():
                for key, _ in selector.select(max(0.0, due - time.monotonic())):
                    if key.data is None:
                        line, _ = self._listener.accept()
                        line.setblocking(False)
                        self.connections += 1
                        connection = _Connection(line, self.connections)
                        selector.register(line, selectors.EVENT_READ, connection)
                    else:
                        self._read(key.data, selector)
                if time.monotonic() >= due:
                    due += PERIOD_SECONDS
                    for connection in self._open(selector):
                        try:
                            connection.print()
                        except OSError:
                            self._end(connection, selector)
            for connection in self._open(selector):
                connection.line.close()

    def _open(self, selector: selectors.BaseSelector) -> list[_Connection]:
        return [key.data for key in selector.get_map().values() if key.data is not None]

    def _read(self, connection: _Connection, selector: selectors.BaseSelector) -> None:
        try:
            data = connection.line.recv(READ_BYTES)
        except OSError:
            data = b""
        if not data:
            self._end(connection, selector)
            return
        self.wrote(connection.number, data, time.monotonic())

    def wrote(self, number: int, data: bytes, now: float) -> None:
        """Connection `number` has written `data`."""
        self.written += len(data)
        if number > self._writer:
            self._writer, self._since = number, now
        elif number < self._writer and now - self._since > ON_THE_WAY_SECONDS:
            self.overlaps.append(f"connection {number} wrote {data[:20]!r} after {self._writer} had begun")

    def _end(self, connection: _Connection, selector: selectors.BaseSelector) -> None:
        selector.unregister(connection.line)
        connection.line.close()
