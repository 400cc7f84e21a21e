"""What a line could carry at best, measured on the line itself by as little code as possible.

A paced line carries its rate. An upload to a board without flow control can have no more on its way than the board's
receive ring holds, so it is also bound by `ring / round trip`: a byte there and back, which is measured. A line without
a pace is bound by the two processes at its ends: a bare loop on the board takes, and gives, a declared number of bytes.
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
# A fraction of a second without a pace: shorter ones measure the first byte.
UNPACED_BYTES = 4_000_000
PATIENCE = 20.0
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
    """The limits of the line to `board`, which nobody else may use meanwhile."""
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
    """The raw REPL of a board, by hand: what is measured here must not be what is measured against it."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_NOCTTY)
        tty.setraw(self._descriptor)
        termios.tcflush(self._descriptor, termios.TCIFLUSH)
        self._send(b"\r\x03\x03\r\x01")
        self._until(RAW_PROMPT)

    def round_trip(self) -> float:
        """The median of seconds that a byte takes there and back."""
        self._start(ECHO.format(count=ROUND_TRIPS))
        seconds = []
        for _ in range(ROUND_TRIPS):
            began = time.perf_counter()
            self._send(b"x")
            came = self._more(1)
            if came != b"x":
                raise ProtocolError(f"the simulated board echoed {came!r} while its line was measured")
            seconds.append(time.perf_counter() - began)
        self._until(b"\x04\x04>")
        return statistics.median(seconds)

    def upload(self, count: int) -> float:
        """Bytes per second that a bare loop on the board takes."""
        self._start(TAKE.format(count=count))
        began = time.perf_counter()
        self._send(bytes(count))
        self._take(1)
        seconds = time.perf_counter() - began
        self._until(b"\x04\x04>")
        return count / seconds

    def download(self, count: int) -> float:
        """Bytes per second that a bare loop on the board gives."""
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
        ready, _, _ = select.select([self._descriptor], [], [], PATIENCE)
        if not ready:
            raise TransportTimeout("the simulated board said nothing while its line was measured")
        return os.read(self._descriptor, count)
