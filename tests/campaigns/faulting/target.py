"""The target of the relay: a TCP server that sends the same bytes to every client, and then ends the connection."""

from __future__ import annotations

import random
import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

CONTENT = random.Random(7).randbytes(200_000)


class Target:
    """Listens at `port` while the context lasts."""

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run, name="relay-target")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _run(self) -> None:
        with suppress(OSError):
            while True:
                stream, _ = self._listener.accept()
                threading.Thread(target=self._say, args=(stream,), daemon=True).start()

    def _say(self, stream: socket.socket) -> None:
        with stream, suppress(OSError):
            stream.settimeout(60)
            stream.sendall(CONTENT)
            stream.shutdown(socket.SHUT_WR)
            stream.recv(1)
