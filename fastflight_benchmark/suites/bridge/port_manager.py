"""A bridge made with pyserial: `serial.rfc2217.PortManager` between a serial port and one client at a time.

    python -m fastflight_benchmark.suites.bridge.port_manager /dev/pts/3      # listening on 127.0.0.1:40124;

A thread reads from the port, escapes the bytes and sends them. The main thread filters the client's bytes and writes
them to the port. pyserial's own example does the same, with the same read sizes.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from typing import Any

import serial
import serial.rfc2217

# The values of pyserial's example.
READ_BYTES = 1024
READ_SECONDS = 3.0


class Terminal(serial.Serial):
    """A port whose modem lines are always off. A pseudo-terminal has none, and reading them would end the bridge."""

    cts = dsr = ri = cd = False


class Client:
    """One connection. `PortManager` sends its answers with `write`."""

    def __init__(self, port: serial.Serial, stream: socket.socket) -> None:
        self._port = port
        self._stream = stream
        self._sending = threading.Lock()
        self._manager = _manager(port, self)
        self._alive = True

    def write(self, data: bytes) -> None:
        """Send all of `data`."""
        with self._sending:
            self._stream.sendall(data)

    def run(self) -> None:
        """Carry bytes until the client leaves."""
        reader = threading.Thread(target=self._read, name="port to client")
        reader.start()
        try:
            with contextlib.suppress(OSError):
                while data := self._stream.recv(READ_BYTES):
                    self._port.write(b"".join(self._manager.filter(data)))
        finally:
            self._alive = False
            self._port.cancel_read()
            reader.join()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while self._alive:
                data = self._port.read(self._port.in_waiting or 1)
                if data:
                    self.write(b"".join(self._manager.escape(data)))


def _manager(port: Any, connection: Any) -> serial.rfc2217.PortManager:
    """Return a `PortManager`. It accepts more types than its annotations say."""
    return serial.rfc2217.PortManager(port, connection)


def main() -> None:
    """Serve until ended."""
    port = Terminal(sys.argv[1], timeout=READ_SECONDS)
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"listening on 127.0.0.1:{listener.getsockname()[1]};", flush=True)
    while True:
        stream, _ = listener.accept()
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with stream:
            Client(port, stream).run()


if __name__ == "__main__":
    main()
