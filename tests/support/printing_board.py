"""Boards behind a TCP port that print lines. They outlive the servers that connect to them.

`PrintingBoard` has the port, the thread and the connections. A kind of board is a subclass: it says what is printed at
each tick of its clock, and to which connections. `BufferingBoard` is one for tests; campaigns have others.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from dataclasses import dataclass
from typing import Self

HOST = "127.0.0.1"
PERIOD_SECONDS = 0.02
READ_BYTES = 4096


@dataclass(eq=False)
class Connection:
    """A client's connection: its number, counted from 1, and what it has not taken yet."""

    line: socket.socket
    number: int
    lines: int = 0
    unsent: bytes = b""

    def send(self, data: bytes) -> None:
        """Print. Bytes that the client does not take now are sent later. `OSError` if the connection has ended."""
        self.unsent += data
        try:
            self.unsent = self.unsent[self.line.send(self.unsent) :]
        except BlockingIOError:  # the client is stopped
            return


class PrintingBoard:
    """A board that runs while its context lasts. `connections`: the open connections, oldest first."""

    period_seconds = PERIOD_SECONDS

    def __init__(self) -> None:
        self._listener = socket.create_server((HOST, 0), backlog=8)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self.connections: list[Connection] = []
        # How many there were.
        self.connected = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="board", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def tick(self) -> None:
        """Print to `connections`. An `OSError` of one of them closes it."""
        raise NotImplementedError

    def received(self, connection: Connection, data: bytes) -> None:
        """A client has written `data`."""

    def close(self, connection: Connection) -> None:
        """End a connection."""
        self.connections.remove(connection)
        self._selector.unregister(connection.line)
        connection.line.close()

    def print(self, connection: Connection, data: bytes) -> None:
        """Print to a connection, or end it if the client has left."""
        try:
            connection.send(data)
        except OSError:
            self.close(connection)

    def _run(self) -> None:
        with selectors.DefaultSelector() as self._selector, self._listener:
            self._selector.register(self._listener, selectors.EVENT_READ)
            due = time.monotonic()
            while not self._over.is_set():
                for key, _ in self._selector.select(max(0.0, due - time.monotonic())):
                    if key.data is None:
                        self._accept()
                    elif key.data in self.connections:
                        self._read(key.data)
                if time.monotonic() >= due:
                    due += self.period_seconds
                    self.tick()
            for connection in list(self.connections):
                self.close(connection)

    def _accept(self) -> None:
        line, _ = self._listener.accept()
        line.setblocking(False)
        self.connected += 1
        self.connections.append(Connection(line, self.connected))
        self._selector.register(line, selectors.EVENT_READ, self.connections[-1])

    def _read(self, connection: Connection) -> None:
        try:
            data = connection.line.recv(READ_BYTES)
        except OSError:
            data = b""
        if data:
            self.received(connection, data)
        else:
            self.close(connection)


class BufferingBoard(PrintingBoard):
    """Prints numbered lines to one client at a time, and buffers the lines that no client has read.

    So it is known of each line whether a server has read it: `began` has the number of the first line of each client.
    What was sent to a server that is killed is gone, as with a board.
    """

    def __init__(self) -> None:
        super().__init__()
        self.began: list[int] = []
        # The number of the next line that is printed, and of the next one that is sent.
        self._printed = self._next = 0
        self._client: Connection | None = None

    def tick(self) -> None:
        self._printed += 1
        if not self.connections:
            return
        client = self.connections[0]
        if client is not self._client:
            self._client = client
            self.began.append(self._next)
        text = b"".join(b"line %d.\n" % number for number in range(self._next, self._printed))
        self._next = self._printed
        self.print(client, text)
