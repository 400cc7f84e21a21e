"""Measures the limit of a line, on the line itself and with as little code as possible.

The limit of a paced line is its rate. An upload to a board without flow control may have no more bytes on their way
than the board's receive ring holds, so its limit is also `ring / round trip`. The round trip of a byte is measured. A
line without a pace is limited by the two processes at its ends: a bare loop on the board receives or sends a number of
bytes.
"""

from __future__ import annotations

import os
import select
import statistics
import termios
import time
import tty
from dataclasses import dataclass

from fastflight.errors import ProtocolError, TransportTimeout
from fastflight_benchmark.simulated import RING, SimulatedBoard

ROUND_TRIPS = 50
# Bytes for a fraction of a second without a pace. A shorter transfer would mostly measure its first byte.
UNPACED_BYTES = 4_000_000
TIMEOUT_SECONDS = 20.0
BITS_PER_BYTE = 10
RAW_PROMPT = b"raw REPL; CTRL-B to exit\r\n>"

ECHO = """\
import sys, micropython
b = bytearray(1)
micropython.kbd_intr(-1)
sys.stdout.buffer.write(b'go')
for _ in range({count}):
 sys.stdin.buffer.readinto(b)
 sys.stdout.buffer.write(b)
micropython.kbd_intr(3)
"""
TAKE = """\
import sys, micropython
b = bytearray(16384)
m = memoryview(b)
micropython.kbd_intr(-1)
sys.stdout.buffer.write(b'go')
n = {count}
while n:
 n -= sys.stdin.buffer.readinto(m[:min(n, 16384)])
sys.stdout.buffer.write(b'k')
micropython.kbd_intr(3)
"""
GIVE = """\
import sys
b = bytearray(16384)
m = memoryview(b)
sys.stdout.buffer.write(b'go')
n = {count}
while n:
 n -= sys.stdout.buffer.write(m[:min(n, 16384)])
"""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes per second each way, and the round trip that bounds uploads."""

    upload: float
    download: float
    round_trip_seconds: float


def measure(board: SimulatedBoard) -> Limits:
    """Return the limits of the line to `board`. Nothing else may use the line at the same time."""
    line = _Line(board.path)
    try:
        trip = line.round_trip()
        if not board.baud:
            return Limits(line.upload(UNPACED_BYTES), line.download(UNPACED_BYTES), trip)
        rate = board.baud / BITS_PER_BYTE
        return Limits(min(rate, RING / trip), rate, trip)
    finally:
        line.close()


class _Line:
    """A minimal raw REPL. It uses none of fastflight's code, which is later compared with this limit."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_NOCTTY)
        tty.setraw(self._descriptor)
        termios.tcflush(self._descriptor, termios.TCIFLUSH)
        self._send(b"\r\x03\x03\r\x01")
        self._until(RAW_PROMPT)

    def round_trip(self) -> float:
        """Return the median seconds until a byte comes back."""
        self._start(ECHO.format(count=ROUND_TRIPS))
        seconds = []
        for _ in range(ROUND_TRIPS):
            began = time.perf_counter()
            self._send(b"x")
            echoed = self._more(1)
            if echoed != b"x":
                raise ProtocolError(f"the simulated board echoed {echoed!r} while its line was measured")
            seconds.append(time.perf_counter() - began)
        self._until(b"\x04\x04>")
        return statistics.median(seconds)

    def upload(self, count: int) -> float:
        """Return the bytes per second that a bare loop on the board receives."""
        self._start(TAKE.format(count=count))
        began = time.perf_counter()
        self._send(bytes(count))
        self._take(1)
        seconds = time.perf_counter() - began
        self._until(b"\x04\x04>")
        return count / seconds

    def download(self, count: int) -> float:
        """Return the bytes per second that a bare loop on the board sends."""
        self._start(GIVE.format(count=count))
        began = time.perf_counter()
        self._take(count)
        seconds = time.perf_counter() - began
        self._until(b"\x04\x04>")
        return count / seconds

    def close(self) -> None:
        self._send(b"\r\x02")
        os.close(self._descriptor)

    def _start(self, code: str) -> None:
        self._send(code.encode() + b"\x04")
        self._until(b"OKgo")

    def _send(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._descriptor, data) :]

    def _take(self, count: int) -> None:
        while count:
            count -= len(self._more(count))

    def _until(self, end: bytes) -> None:
        seen = b""
        while not seen.endswith(end):
            seen += self._more(1)

    def _more(self, count: int) -> bytes:
        ready, _, _ = select.select([self._descriptor], [], [], TIMEOUT_SECONDS)
        if not ready:
            raise TransportTimeout("the simulated board sent nothing while its line was measured")
        return os.read(self._descriptor, count)
