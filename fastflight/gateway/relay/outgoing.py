"""What goes to one client: frames in order, handed to the system as they lie, header and payload in one call.

A payload is part of a buffer that was lent by `Buffers` and goes back there when the system has it all. What the system
does not take at once waits; `frames` and `size` say how much that is, and `drained` is told when it falls.
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

# Buffers that are kept for the next read: as many as are in use at a time when nobody is slow, and some more.
KEPT_BUFFERS = 8
# Frames in one call: the system allows 1024 pieces, and its own buffer is full long before.
GATHERED_FRAMES = 16
NOTHING = memoryview(b"")


def unpaced(sock: socket.socket) -> None:
    """Let TCP send as fast as it can where the other end is this computer.

    Some systems pace by what they take the network to carry (BBR). On loopback that is timers and smaller pieces for a
    network that is not there. Linux has `reno` everywhere, which does not pace. `docs/relay.md` has what it brings.
    """
    option = getattr(socket, "TCP_CONGESTION", None)
    if option is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    with contextlib.suppress(OSError):  # gone meanwhile, or a system that has another name for it
        if ipaddress.ip_address(sock.getpeername()[0]).is_loopback:
            sock.setsockopt(socket.IPPROTO_TCP, option, b"reno")


class Buffers:
    """Buffers of one size, used again and again. Belongs to one loop."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._free: list[bytearray] = []

    def take(self) -> bytearray:
        return self._free.pop() if self._free else bytearray(self.size)

    def give(self, buffer: bytearray) -> None:
        """Nobody has a view of it any more."""
        if len(self._free) < KEPT_BUFFERS:
            self._free.append(buffer)


@dataclass(slots=True)
class _Frame:
    views: list[memoryview]
    buffer: bytearray | None


class RelayOutgoing:
    """The way to the client at `sock`, which does not block. Belongs to one loop."""

    def __init__(
        self, sock: socket.socket, buffers: Buffers, drained: Callable[[], None], lost: Callable[[], None]
    ) -> None:
        """`drained` is told whenever the system has taken what waited, `lost` once, when the client is gone."""
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
        """How many wait."""
        return len(self._queue)

    def send(self, head: bytes, payload: memoryview = NOTHING, buffer: bytearray | None = None) -> None:
        """Send `head` and then `payload`, a part of the lent `buffer`. After `close`: nothing."""
        sent, total = 0, len(head) + len(payload)
        if not self._queue and not self._closed:
            sent = self._try((head, payload))
        if sent == total or self._closed:
            if buffer is not None:
                self._buffers.give(buffer)
            return
        views = [memoryview(head)[sent:]] if sent < len(head) else []
        if rest := payload[max(0, sent - len(head)) :]:
            if buffer is not None and 2 * len(rest) < len(buffer):
                # Not worth a whole buffer for as long as the client likes.
                rest = memoryview(bytes(rest))
                self._buffers.give(buffer)
                buffer = None
            views.append(rest)
        if not self._queue:
            self._loop.add_writer(self._sock, self._writable)
        self._queue.append(_Frame(views, buffer))
        self.size += total - sent

    def close(self) -> None:
        """Throw away what waits; the socket is closed by its owner, afterwards."""
        if self._queue:
            self._loop.remove_writer(self._sock)
        self._closed = True
        self._queue.clear()
        self.size = 0

    def _writable(self) -> None:
        views = [view for frame in islice(self._queue, GATHERED_FRAMES) for view in frame.views]
        sent = self._try(views)
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

    def _try(self, views: tuple[bytes, memoryview] | list[memoryview]) -> int:
        try:
            return self._sock.sendmsg(views)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            self.close()
            self._loop.call_soon(self._lost)  # whoever sends is not to lose its own state under its hands
            return 0
