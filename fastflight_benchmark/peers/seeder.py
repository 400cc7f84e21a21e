"""The source of every transfer: it sends as many bytes as a client requests, in chunks of the requested size.

    python -m fastflight_benchmark.peers.seeder

A client sends a line, `SIZE CHUNK`. It gets `SIZE` bytes of `content` in writes of `CHUNK`; then the connection ends.
"""

from __future__ import annotations

import contextlib
import socket
import threading

from fastflight_benchmark.relay_content import BLOCK_BYTES, stream

# The longest chunk that a client may request.
MAX_CHUNK = 1024 * 1024


def main() -> None:
    content = memoryview(stream(BLOCK_BYTES + MAX_CHUNK))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(f"listening on 127.0.0.1:{listener.getsockname()[1]};", flush=True)
        while True:
            sock, _ = listener.accept()
            threading.Thread(target=seed, args=(sock, content), daemon=True).start()


def seed(sock: socket.socket, content: memoryview) -> None:
    """Serve one client."""
    with sock, contextlib.suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        line = b""
        while not line.endswith(b"\n"):
            received = sock.recv(100)
            if not received:
                return
            line += received
        size, chunk = (int(word) for word in line.split())
        sent = 0
        while sent < size:
            place, length = sent % BLOCK_BYTES, min(chunk, size - sent)
            sock.sendall(content[place : place + length])
            sent += length
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(100):
            pass


if __name__ == "__main__":
    main()
