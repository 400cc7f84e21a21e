"""What sees all bytes that cross a port: the guard, which may refuse writes, and the tap of the line.

A port with a `PortTap` feeds the tap: `rx` with the bytes of each read, `tx` with the bytes of each write, before any
answer to them. The owner of the port calls `traffic.begin` and `traffic.end`, and the conversations report what they
do, so that the tap can tell the traffic of requests from what the board sends by itself.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from fastflight.errors import TransportError
from fastflight.protocol import Conversation, Receive
from fastflight.protocol.agent_frames import MARK
from fastflight.protocol.traffic import Traffic
from fastflight.transport.port import READ_BYTES
from fastflight.transport.tap import Tap

# The backlog is what the device sent before the port was opened. A port hands it over at once; a USB port within a few
# milliseconds. Bytes that the board sends in this time count as backlog too: the time of their rows is not known.
BACKLOG_SECONDS = 0.02
MAX_BACKLOG_BYTES = READ_BYTES

# Raises if this process may not write to the device now.
Guard = Callable[[], None]


def receive_backlog() -> Conversation[None]:
    """Receive the bytes that waited in a port that was just opened. Run it for at most `BACKLOG_SECONDS`."""
    received = 0
    with contextlib.suppress(TransportError):  # if the line is lost, the next call raises
        while received < MAX_BACKLOG_BYTES:
            received += len((yield Receive(BACKLOG_SECONDS)))


def unheard(data: bytes) -> None:
    """The default listener."""


def unguarded() -> None:
    """The default guard: this process may always write."""


class PortTap:
    """Feeds `tap` with what crosses one port.

    The port calls `guard` before each write and each control of the line. It raises if this process may not do that
    now. `notify` gets all bytes that are read. `can_wait`: the line has no speed of its own, as a socket, and so waits
    until it is read.
    """

    def __init__(
        self,
        tap: Tap,
        guard: Guard = unguarded,
        notify: Callable[[bytes], None] = unheard,
        *,
        can_wait: bool = True,
    ) -> None:
        self.guard = guard
        self.traffic = Traffic(self._heard, self._ended, time.monotonic)
        self._tap = tap
        self._notify = notify
        self._can_wait = can_wait
        self._reading_backlog = False

    @contextlib.contextmanager
    def reading_backlog(self) -> Iterator[None]:
        """Mark the bytes that are received within the `with` block as backlog (`Chunk.waited`)."""
        self._reading_backlog = True
        try:
            yield
        finally:
            self._reading_backlog = False

    @property
    def is_ahead(self) -> bool:
        """Whether the port should not be read until the recorder has taken what was read."""
        return self._can_wait and self._tap.is_ahead

    async def apace(self) -> None:
        """Wait while the line `is_ahead`. Await it before each read."""
        if self._can_wait:
            await self._tap.apace()

    def received(self, data: bytes) -> None:
        """Note the bytes of a read."""
        self._notify(data)
        if self._reading_backlog:
            self._tap.feed("rx", data, waited=True)
        else:
            self.traffic.received(data)

    def overheard(self, data: bytes) -> bool:
        """Note bytes that nobody waits for. Return whether the line `is_ahead`."""
        if not self.traffic.is_idle or MARK in data:
            self.received(data)
        elif not self._tap.hold(data, self._notify):
            return False
        return self.is_ahead

    def settle(self) -> None:
        """Hand all bytes over that were `overheard`, before somebody uses the line."""
        self._tap.collect()

    def sending(self, data: bytes) -> None:
        """Note the bytes of a write. Raise the error of the guard if they may not be written."""
        self.guard()
        self._tap.feed("tx", data, request=self.traffic.sending())

    def _heard(self, data: bytes, is_request: bool) -> None:
        self._tap.feed("rx", data, request=is_request)

    def _ended(self, begins_line: bool) -> None:
        self._tap.end_of_request(begins_line=begins_line)
