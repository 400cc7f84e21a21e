"""A board behind a TCP port for one client at a time. It numbers its lines, and keeps those that nobody reads.

So it is known of each line whether a server has read it: `began` has the number of the first line of each connection.
What was sent to a server that is killed is gone, as with a board.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"
PERIOD_SECONDS = 0.02


class BufferingBoard:
    """The board, while its context lasts."""

    def __init__(self) -> None:
        self._listener = socket.create_server((HOST, 0), backlog=8)
        self.port: int = self._listener.getsockname()[1]
        self.began: list[int] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="board")
        self._since = time.monotonic()
        # The number of the next line that is sent.
        self._next = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        with self._listener:
            while not self._over.is_set():
                if select.select([self._listener], [], [], PERIOD_SECONDS)[0]:
                    line, _ = self._listener.accept()
                    with line, contextlib.suppress(OSError):
                        self.began.append(self._next)
                        self._serve(line)

    def _serve(self, line: socket.socket) -> None:
        """Send lines until the client is gone. What it writes is read and has no effect."""
        while not self._over.is_set():
            if select.select([line], [], [], PERIOD_SECONDS)[0] and not line.recv(4096):
                return
            printed = int((time.monotonic() - self._since) / PERIOD_SECONDS)
            text = b"".join(b"line %d.\n" % number for number in range(self._next, printed))
            line.sendall(text)
            self._next = max(self._next, printed)
