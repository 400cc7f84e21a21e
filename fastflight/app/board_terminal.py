"""A terminal of a board without a server: it holds the board's line."""

from __future__ import annotations

from contextlib import ExitStack, suppress

from fastflight.device import Device
from fastflight.device.held_line import LineThread
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
        with ExitStack() as held:
            port = held.enter_context(device.line("a terminal"))
            self._line = held.enter_context(LineThread(port, lambda _: self._tap.nudge()))
            self._held = held.pop_all()

    def send(self, data: bytes) -> None:
        """Write to the board. Returns when the line has taken all of it."""
        self._line.send(data)

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
        self._line.give_back()
        self._tap.nudge()

    cancel = done

    def settle(self) -> None:
        """Give the line back. If it is broken, the next use of the device opens it again."""
        failure = self._line.failure
        with suppress(TransportError):
            if failure is None:
                self._held.close()
            else:
                self._held.__exit__(type(failure), failure, failure.__traceback__)
