"""The wire between a `Link` to the host and a `Uart`.

A reader thread receives bytes from the link and passes them to the UART: at once on an unpaced line. On a paced line it
puts them into a backlog, from which a second thread passes them on at the line's pace; the reader can so notice the end
of the connection while bytes are still on the wire. When no host can come again, the process ends.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque

from fastflight.simulator.link import Link
from fastflight.simulator.pacer import Pacer
from fastflight.simulator.uart import PEER_CHECK_INTERVAL, Uart

# The most bytes in the backlog of a paced line. Beyond that the host's writes block, as with an operating system's
# buffer.
MAX_BACKLOG = 1 << 20


def leave() -> None:
    """End the process at once, even while its main thread runs board code."""
    os._exit(0)


class Line:
    """Moves bytes between `link` and a UART. Give the UART `send` and `check_peer`, then call `start`."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._backlog: deque[tuple[float, bytes]] = deque()
        self._backlog_size = 0
        self._change = threading.Condition()

    def send(self, data: memoryview) -> None:
        try:
            self._link.send(data)
        except OSError:
            leave()

    def check_peer(self) -> None:
        """End the process if the peer has closed the connection, even if its last bytes are not read yet."""
        if self._link.has_ended():
            leave()

    def start(self, uart: Uart, rate: float) -> None:
        if rate:
            pacer = Pacer(rate)
            threading.Thread(target=self._pace, args=(uart, pacer), name="wire", daemon=True).start()
        threading.Thread(target=self._read, args=(uart, bool(rate)), name="reader", daemon=True).start()

    def _read(self, uart: Uart, paced: bool) -> None:
        while True:
            data = self._link.receive()
            if not data:
                leave()
            if not paced:
                uart.arrive(data)
                continue
            with self._change:
                self._backlog.append((time.monotonic(), data))
                self._backlog_size += len(data)
                self._change.notify_all()
                while self._backlog_size > MAX_BACKLOG:
                    if not self._change.wait(PEER_CHECK_INTERVAL):
                        self.check_peer()

    def _pace(self, uart: Uart, pacer: Pacer) -> None:
        while True:
            with self._change:
                while not self._backlog:
                    self._change.wait()
                since, data = self._backlog.popleft()
            pacer.begin(since)
            view = memoryview(data)
            while view:
                time.sleep(max(0.0, pacer.next_at(len(view)) - time.monotonic()))
                count = min(len(view), pacer.due())
                pacer.moved(count)
                uart.arrive(bytes(view[:count]))
                view = view[count:]
                with self._change:
                    self._backlog_size -= count
                    self._change.notify_all()
