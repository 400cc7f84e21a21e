"""Sends frames to one client in order and without copies, header and payload in one system call.

A payload is part of a buffer lent by `Buffers`, and the buffer is given back when the system has taken all of it.
Frames that the system does not take at once wait. `frames` and `size` say how much waits, and `drained` is called when
it becomes less.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

# Free buffers that are kept for later reads: a few more than are in use while no client is slow.
KEPT_BUFFERS = 8
# Frames in one call. The system allows 1024 pieces, but its buffer is full long before.
GATHERED_FRAMES = 16
NOTHING = memoryview(b"")


def unpaced(sock: socket.socket) -> None:
    """Let TCP send as fast as it can where the other end is this computer.

    Some systems pace by an estimate of the network (BBR). On loopback this only costs timers and makes smaller pieces.
    Linux always has `reno`, which does not pace. `docs/relay.md` has measurements.
    """
    option = getattr(socket, "TCP_CONGESTION", None)
    if option is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    with contextlib.suppress(OSError):  # disconnected, or a system without `reno`
        if ipaddress.ip_address(sock.getpeername()[0]).is_loopback:
            sock.setsockopt(socket.IPPROTO_TCP, option, b"reno")


class Buffers:
    """A pool of buffers of one size. Belongs to one loop."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._free: list[bytearray] = []

    def take(self) -> bytearray:
        return self._free.pop() if self._free else bytearray(self.size)

    def give(self, buffer: bytearray) -> None:
        """Give a buffer back. No view of it may be in use."""
        if len(self._free) < KEPT_BUFFERS:
            self._free.append(buffer)


@dataclass(slots=True)
class _Frame:
    views: list[memoryview]
    buffer: bytearray | None


class RelayOutgoing:
    """Sends to the client at `sock`, which must be non-blocking. Belongs to one loop."""

    def __init__(
        self, sock: socket.socket, buffers: Buffers, drained: Callable[[], None], lost: Callable[[], None]
    ) -> None:
        """`drained` is called whenever the system has taken waiting bytes, `lost` once, when the client is gone."""
        self._sock = sock
        self._buffers = buffers
        self._drained = drained
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._queue: deque[_Frame] = deque()
        self._closed = False
        # Bytes that wait.
        self.size = 0

    @property
    def frames(self) -> int:
        """How many frames wait."""
        return len(self._queue)

    def send(self, head: bytes, payload: memoryview = NOTHING, buffer: bytearray | None = None) -> None:
        """Send `head` and then `payload`, a part of the lent `buffer`. Sends nothing after `close`."""
        sent, total = 0, len(head) + len(payload)
        if not self._queue and not self._closed:
            sent = self._try_send((head, payload))
        if sent == total or self._closed:
            if buffer is not None:
                self._buffers.give(buffer)
            return
        views = [memoryview(head)[sent:]] if sent < len(head) else []
        if rest := payload[max(0, sent - len(head)) :]:
            if buffer is not None and 2 * len(rest) < len(buffer):
                # A slow client would hold a large buffer for a small rest, so the rest is copied.
                rest = memoryview(bytes(rest))
                self._buffers.give(buffer)
                buffer = None
            views.append(rest)
        if not self._queue:
            self._loop.add_writer(self._sock, self._writable)
        self._queue.append(_Frame(views, buffer))
        self.size += total - sent

    def close(self) -> None:
        """Drop all waiting frames. The owner must close the socket afterwards."""
        if self._queue:
            self._loop.remove_writer(self._sock)
        self._closed = True
        self._queue.clear()
        self.size = 0

    def _writable(self) -> None:
        views = [view for frame in islice(self._queue, GATHERED_FRAMES) for view in frame.views]
        sent = self._try_send(views)
        if self._closed or not sent:
            return
        self.size -= sent
        while sent:
            frame = self._queue[0]
            first = frame.views[0]
            if sent < len(first):
                frame.views[0] = first[sent:]
                break
            sent -= len(first)
            del frame.views[0]
            if not frame.views:
                self._queue.popleft()
                if frame.buffer is not None:
                    self._buffers.give(frame.buffer)
        if not self._queue:
            self._loop.remove_writer(self._sock)
        self._drained()

    def _try_send(self, views: tuple[bytes, memoryview] | list[memoryview]) -> int:
        try:
            return self._sock.sendmsg(views)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            self.close()
            self._loop.call_soon(self._lost)  # not called directly: it would change the state of the caller of `send`
            return 0
