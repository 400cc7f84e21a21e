"""The child of an `exec:` device: it connects its terminal to a board at a TCP port.

    python -m tests.campaigns.faulting.child PORT

Ends when either side does, as MicroPython's unix port ends with its terminal.
"""

from __future__ import annotations

import os
import socket
import sys
import threading

READ_BYTES = 65_536


def main() -> None:
    board = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    board.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    threading.Thread(target=_say, args=(board,), daemon=True).start()
    try:
        while data := os.read(0, READ_BYTES):
            board.sendall(data)
    except OSError:
        pass
    os._exit(0)


def _say(board: socket.socket) -> None:
    try:
        while data := board.recv(READ_BYTES):
            while data:
                data = data[os.write(1, data) :]
    except OSError:
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
