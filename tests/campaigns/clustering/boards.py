"""A board behind a TCP port that finds out if two servers write to it at the same time.

Each connection gets a stream of numbered lines of its own, `CONNECTION:NUMBER:xxx`, as `faulting.talker` checks them.
A server that takes the board over opens a connection. From the first byte that it writes, the connections before it
belong to earlier owners: a byte that one of those still writes is an overlap.
"""

from __future__ import annotations

import time

from tests.support.printing_board import Connection, PrintingBoard

# At each tick; about 50 lines a second.
LINES = 2
# Bytes that an earlier owner wrote before, and that were read only now.
ON_THE_WAY_SECONDS = 0.1


class CountingBoard(PrintingBoard):
    """`overlaps` says when an earlier owner wrote after a later one."""

    period_seconds = 0.04

    def __init__(self) -> None:
        super().__init__()
        self.written = 0
        self.overlaps: list[str] = []
        self._writer, self._since = 0, 0.0

    def tick(self) -> None:
        for connection in list(self.connections):
            lines = range(connection.lines, connection.lines + LINES)
            text = "".join(f"{connection.number}:{line}:{'x' * (line * 7919 % 60)}\r\n" for line in lines)
            begin = "" if connection.lines else "\r\n"
            connection.lines += LINES
            self.print(connection, (begin + text).encode())

    def received(self, connection: Connection, data: bytes) -> None:
        self.wrote(connection.number, data, time.monotonic())

    def wrote(self, number: int, data: bytes, now: float) -> None:
        """Connection `number` has written `data`."""
        self.written += len(data)
        if number > self._writer:
            self._writer, self._since = number, now
        elif number < self._writer and now - self._since > ON_THE_WAY_SECONDS:
            self.overlaps.append(f"connection {number} wrote {data[:20]!r} after {self._writer} had begun")
