"""The target of the relay: a TCP server that sends the same bytes to every client, and then ends the connection."""

from __future__ import annotations

import random
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

CONTENT = random.Random(7).randbytes(200_000)


class _Sending(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        with suppress(OSError):
            self.request.settimeout(60)
            self.request.sendall(CONTENT)
            self.request.shutdown(socket.SHUT_WR)
            self.request.recv(1)


class _Target(socketserver.ThreadingTCPServer):
    daemon_threads = True


@contextmanager
def relay_target() -> Iterator[int]:
    """Serve until the block ends. Yields the port."""
    with _Target(("127.0.0.1", 0), _Sending) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="relay-target")
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
