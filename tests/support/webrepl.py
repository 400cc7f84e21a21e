"""The WebREPL of a board, as MicroPython's `webrepl.py` and `modwebrepl.c` do it, in front of a stream.

    with webrepl("secret", socket) as server:
        parse_url(f"ws://127.0.0.1:{server.port}")

Written from their sources' documentation, and on purpose with no WebSocket library: it serves one client at a time and
closes the connection of a second one, asks for the password with the text `Password: `, reads frames of up to 64 KiB
(no longer ones: a board's firmware stops there), and cuts the terminal into text frames anywhere, also within a
character. It is no board: nothing is claimed for MicroPython that was only seen here.
"""

from __future__ import annotations

import base64
import hashlib
import select
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
# How much of the terminal goes into a frame: a board sends a print as several.
PIECE = 100


class WebRepl(threading.Thread):
    """Serves clients one after another. `stream` is the terminal of the board; without one it takes no input."""

    def __init__(self, password: str, stream: socket.socket | None, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(name="WebREPL")
        self._password = password.encode()
        self._stream = stream
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._stopped, self._stopper = socket.socketpair()
        # The types of all frames from clients, and what they said after the password.
        self.opcodes: set[int] = set()

    def run(self) -> None:
        with self._listener, self._stopped:
            while True:
                readable, _, _ = select.select([self._listener, self._stopped], [], [])
                if self._stopped in readable:
                    return
                client = self._listener.accept()[0]
                with client, suppress(OSError, EOFError, ssl.SSLError):
                    client.settimeout(30)
                    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._serve(client if self._tls is None else self._tls.wrap_socket(client, server_side=True))

    def stop(self) -> None:
        self._stopper.close()
        self.join()

    def _serve(self, client: socket.socket) -> None:
        with client:
            self._shake_hands(client)
            _send(client, TEXT, b"Password: ")
            line = b""
            while b"\r" not in line and b"\n" not in line:
                opcode, data = self._frame(client)
                line += data
            given, _, rest = line.replace(b"\n", b"\r").partition(b"\r")
            if given != self._password:
                _send(client, TEXT, b"\r\nAccess denied\r\n")
                return
            _send(client, TEXT, b"\r\nWebREPL connected\r\n")
            if self._stream is None:
                gone = select.poll()
                gone.register(client, select.POLLRDHUP)
                gone.register(self._stopped, select.POLLIN)
                gone.poll()
                return
            self._stream.sendall(rest)
            self._carry(client, self._stream)

    def _carry(self, client: socket.socket, stream: socket.socket) -> None:
        while True:
            pending = isinstance(client, ssl.SSLSocket) and client.pending()
            readable, _, _ = select.select(
                [client, stream, self._stopped, self._listener], [], [], 0 if pending else None
            )
            if self._stopped in readable:
                return
            if self._listener in readable:
                self._listener.accept()[0].close()  # a second client
            if stream in readable:
                data = stream.recv(65536)
                for start in range(0, len(data), PIECE):
                    _send(client, TEXT, data[start : start + PIECE])
                if not data:
                    return
            if client in readable or pending:
                opcode, data = self._frame(client)
                if opcode == CLOSE:
                    return
                if opcode == PING:
                    _send(client, PONG, data)
                else:
                    stream.sendall(data)

    def _shake_hands(self, client: socket.socket) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += _exactly(client, 1)
        fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
        key = next(value for name, value in fields.items() if name.lower() == b"sec-websocket-key")
        accept = base64.b64encode(hashlib.sha1(key + GUID).digest())
        answer = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        client.sendall(answer + b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n")

    def _frame(self, client: socket.socket) -> tuple[int, bytes]:
        first, second = _exactly(client, 2)
        size = second & 0x7F
        assert size != 127, "a board does not read frames of more than 64 KiB"
        if size == 126:
            (size,) = struct.unpack(">H", _exactly(client, 2))
        assert second & 0x80, "a client masks its frames"
        mask = _exactly(client, 4)
        data = _exactly(client, size)
        self.opcodes.add(first & 0x0F)
        return first & 0x0F, bytes(byte ^ mask[index % 4] for index, byte in enumerate(data))


@contextmanager
def webrepl(password: str, stream: socket.socket | None, tls: ssl.SSLContext | None = None) -> Iterator[WebRepl]:
    """Serve the terminal `stream` for the length of the block."""
    server = WebRepl(password, stream, tls)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def _send(client: socket.socket, opcode: int, data: bytes) -> None:
    size = bytes([len(data)]) if len(data) < 126 else b"\x7e" + struct.pack(">H", len(data))
    client.sendall(bytes([0x80 | opcode]) + size + data)


def _exactly(client: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        if not (piece := client.recv(count - len(data))):
            raise EOFError
        data += piece
    return data
