"""The wire: a TCP socket to the transport on one side, a `Uart` on the other.

A reader thread takes bytes off the socket and hands them to the UART: at once on an unpaced line, and by way of a
backlog and a pacing thread on a paced one, so that the end of the connection is seen while bytes are still on their
way down the wire. When the peer is gone the process ends: a simulated board has no life of its own.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections import deque

from fastflight.simulator.pacer import Pacer
from fastflight.simulator.uart import PEER_CHECK_INTERVAL, Uart

# A connection that does not come about on the loopback in this time will not.
CONNECT_SECONDS = 10.0
# One `recv`: large enough that bulk transfer is not bound by the number of calls.
RECEIVE_SIZE = 256 * 1024
# Bytes "on the wire" of a paced line, beyond which the host's writes block, as an operating system's buffer would make
# them.
MAX_BACKLOG = 1 << 20
# Linux says that the peer has closed although its last bytes were not read yet; elsewhere that shows only in order.
HANG_UP = getattr(select, "POLLRDHUP", 0)


def connect(address: str, token: str) -> socket.socket:
    """Connect to the transport at `host:port` and prove by `token` that we are the child it started."""
    host, _, port = address.rpartition(":")
    link = socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS)
    link.settimeout(None)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.sendall(token.encode() + b"\n")
    return link


def leave() -> None:
    """End the process, whatever its main thread is doing."""
    os._exit(0)


class Line:
    """Moves bytes between `link` and a UART. Give the UART `send` and `check_peer`, then call `start`."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._parent = os.getppid()
        self._backlog: deque[bytes] = deque()
        self._backlog_size = 0
        self._change = threading.Condition()

    def send(self, data: memoryview) -> None:
        try:
            self._link.sendall(data)
        except OSError:
            leave()

    def check_peer(self) -> None:
        """End the process if the peer is gone, without reading what it sent last.

        TCP hides a close behind more unread bytes than its window holds. Then the end of the parent still shows, and
        a transport that merely closes has to end its child itself.
        """
        if os.getppid() != self._parent:
            leave()
        if HANG_UP:
            poll = select.poll()
            poll.register(self._link, HANG_UP)
            if poll.poll(0):
                leave()

    def start(self, uart: Uart, rate: float) -> None:
        if rate:
            threading.Thread(target=self._pace, args=(uart, rate), name="wire", daemon=True).start()
        threading.Thread(target=self._read, args=(uart, bool(rate)), name="reader", daemon=True).start()

    def _read(self, uart: Uart, paced: bool) -> None:
        while True:
            try:
                data = self._link.recv(RECEIVE_SIZE)
            except OSError:
                data = b""
            if not data:
                leave()
            if not paced:
                uart.arrive(data)
                continue
            with self._change:
                self._backlog.append(data)
                self._backlog_size += len(data)
                self._change.notify_all()
                while self._backlog_size > MAX_BACKLOG:
                    if not self._change.wait(PEER_CHECK_INTERVAL):
                        self.check_peer()

    def _pace(self, uart: Uart, rate: float) -> None:
        pacer = Pacer(rate)
        while True:
            with self._change:
                while not self._backlog:
                    self._change.wait()
                data = self._backlog.popleft()
            pacer.begin()
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
