"""A terminal of a board without a server: it holds the board's line."""

from __future__ import annotations

import threading
from contextlib import ExitStack, suppress

from fastflight.device import Device
from fastflight.device.held_line import LineTask
from fastflight.errors import TransportClosed, TransportError
from fastflight.transport.chunk_buffer import Chunk

# How often a terminal whose board is silent looks whether it was left.
LOOK_SECONDS = 1.0


class BoardTerminal:
    """Sends to a board and receives what crosses its line. One thread may send while another receives.

    Raises `BusyError` if the device is in use, and `TransportError` if its line cannot be opened. Call `settle` at the
    end: it gives the line back.
    """

    def __init__(self, device: Device) -> None:
        self._tap = device.tap
        self._reader = device.tap.reader()
        self._left = False
        self._sending = threading.Lock()
        with ExitStack() as held:
            port = held.enter_context(device.line("a terminal"))
            self._portal = port.portal
            self._line = LineTask(port, lambda _: self._tap.nudge())
            held.enter_context(self._portal.entered(self._line))
            self._held = held.pop_all()

    def send(self, data: bytes) -> None:
        """Write to the board. Returns when the line has taken all of it. Raises `TransportError` after `done`."""
        with self._sending:
            self._check_left()
            # A slow line takes minutes for pasted text, so look meanwhile whether the session was ended.
            self._portal.call(self._line.send(data), self._check_left)

    def _check_left(self) -> None:
        if self._left:
            raise self._line.failure or TransportError("the line was given back")

    def receive(self) -> list[tuple[bool, bytes]] | None:
        """Wait for bytes on the line, and return them: whether the board sent them, and the bytes. None at the end.

        Raises `TransportClosed` if the board is gone.
        """
        while not self._left:
            if items := self._reader.take(LOOK_SECONDS):
                return [(each.direction == "rx", each.data) for each in items if isinstance(each, Chunk)]
            if self._line.failure is not None:
                raise TransportClosed(self._line.failure.what)
        return None

    def done(self) -> None:
        """End the session: nothing more is sent, and `receive` returns None."""
        self._left = True
        self._tap.nudge()

    cancel = done

    def settle(self) -> None:
        """Give the line back. If it is broken, the next use of the device opens it again."""
        self.done()
        failure = self._line.failure
        with self._sending, suppress(TransportError):
            if failure is None:
                self._held.close()
            else:
                self._held.__exit__(type(failure), failure, failure.__traceback__)
