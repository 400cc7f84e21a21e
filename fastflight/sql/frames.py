"""Frames between the server and a worker process: a kind, a number and a payload, over a socket.

A worker sends `READY` and then waits for a query. That is a dialogue, which the server begins with `ASK`, the query,
and `ROWS`, its parameters. The worker answers `TABLES`, the tables that the query names. The server sends a `SCHEMA`
for each, or one `REFUSED`. The worker answers `PLAN`: which columns and rows of each table it needs. Then it sends
the `SCHEMA` of the result, and that of its parameters. If the query is to be run, the server sends `FILES`: for each
table the Parquet files that have its first rows. The worker sends the `ROWS` of the result. In between it sends
`NEXT` when it needs rows of a table, and the server answers with `ROWS`, or with `END` or `REFUSED`; and it sends
`READ` when it needs bytes of a file, and the server answers with `BYTES`, with `REFUSED`, or with `FILE`, the open file
that has these bytes at the same place. The dialogue ends with the worker's `END`, or with `FAILED` at any time.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import threading
from enum import IntEnum
from typing import Any, NamedTuple

_HEADER = struct.Struct("<BIQ")
# A batch of a table with wide rows, for a worker. What the server takes from a worker has a lower limit.
MAX_FRAME_BYTES = 1 << 30


class Kind(IntEnum):
    ASK = 1
    TABLES = 2
    SCHEMA = 3
    PLAN = 4
    NEXT = 5
    ROWS = 6
    END = 7
    REFUSED = 8
    FAILED = 9
    READY = 10
    FILES = 11
    READ = 12
    BYTES = 13
    FILE = 14


_KINDS = frozenset(Kind)


class Frame(NamedTuple):
    """One message. `number` is that of a scan of a table, or of a file, in the frames about these."""

    kind: Kind
    number: int
    payload: bytes

    def json(self) -> Any:
        """Return the payload, which is JSON."""
        return json.loads(self.payload)


class Pipe:
    """One end of the socket. Any thread may send; one thread at a time may receive. Both raise `EOFError`."""

    def __init__(self, stream: socket.socket, max_bytes: int = MAX_FRAME_BYTES) -> None:
        """`max_bytes`: the size of the largest frame that the other end may send."""
        self._stream = stream
        self._max_bytes = max_bytes
        self._sending = threading.Lock()

    def send(self, kind: Kind, payload: Any = b"", number: int = 0) -> None:
        """Send a frame. `payload` is bytes, a buffer, or an object for JSON."""
        if isinstance(payload, dict | list):
            payload = json.dumps(payload).encode()
        content = memoryview(payload).cast("B") if len(payload) else b""
        try:
            with self._sending:
                self._stream.sendall(_HEADER.pack(kind, number, len(content)))
                self._stream.sendall(content)
        except (OSError, ValueError) as error:
            raise EOFError("the other end is closed") from error

    def send_file(self, descriptor: int) -> None:
        """Send a `FILE` frame, and an open file for the other process."""
        try:
            with self._sending:
                self._stream.sendall(_HEADER.pack(Kind.FILE, 0, 0))
                socket.send_fds(self._stream, [b"\0"], [descriptor])
        except OSError as error:
            raise EOFError("the other end is closed") from error

    def receive_file(self) -> int:
        """Return the descriptor that follows a `FILE` frame. Close it."""
        try:
            descriptors = socket.recv_fds(self._stream, 1, 1)[1]
        except OSError as error:
            raise EOFError("the other end is closed") from error
        if not descriptors:
            raise EOFError("the other end is closed")
        return descriptors[0]

    def waits(self, seconds: float) -> bool:
        """Whether nothing has come from the other end for `seconds`."""
        try:
            return not select.select([self._stream], [], [], seconds)[0]
        except (OSError, ValueError) as error:
            raise EOFError("this end is closed") from error

    def receive(self) -> Frame:
        """Wait for the next frame and return it."""
        kind, number, size = _HEADER.unpack(self._exactly(_HEADER.size))
        if size > self._max_bytes or kind not in _KINDS:
            raise EOFError("the other end sends something else")
        return Frame(Kind(kind), number, self._exactly(size))

    def close(self) -> None:
        """Close this end. The other end then gets `EOFError`."""
        self._stream.close()

    def _exactly(self, size: int) -> bytes:
        pieces: list[bytes] = []
        while size:
            try:
                piece = self._stream.recv(size, socket.MSG_WAITALL)
            except (OSError, ValueError) as error:
                raise EOFError("the other end is closed") from error
            if not piece:
                raise EOFError("the other end is closed")
            pieces.append(piece)
            size -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
