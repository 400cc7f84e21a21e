"""The interfaces of the device line behind a bridge. A line belongs to one event loop: make all calls on that loop.

`BridgedLine.run` opens the line, reads it, and opens it again after a loss, until it is cancelled. Received data goes
first to the line's tap and then to its one `Listener`. When a listener cannot accept more data, call `pause`; it
receives nothing until `resume` is called.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from fastflight.transport.port import Address, SerialControl
from fastflight.transport.rfc2217 import Rfc2217Address
from fastflight.transport.serial import SerialAddress
from fastflight.transport.tap import Tap

Phase = Literal["connecting", "open", "lost"]


@dataclass(frozen=True, slots=True)
class State:
    """The state of a line, by `phase`: `open`, `connecting` during an attempt to open it, `lost` between attempts.

    `reason` says why the line was lost; otherwise it is empty.
    """

    phase: Phase
    reason: str = ""


@dataclass(slots=True)
class Driven:
    """The states of DTR and RTS as this side last set them, because a port cannot be asked for them.

    They stay as they are when a client leaves: the next client starts with them.
    """

    dtr: bool = True
    rts: bool = True

    @classmethod
    def at_first(cls, address: Address) -> Driven:
        """Return the states right after `address` is opened: both asserted, unless its URL says otherwise.

        Remote servers open their ports in the same way.
        """
        if isinstance(address, SerialAddress | Rfc2217Address):
            return cls(address.dtr is not False, address.rts is not False)
        return cls()


class Listener(Protocol):
    """Receives the data and the states of a line. Neither method may block or raise."""

    def data_received(self, data: bytes) -> None:
        """Process at least one byte, in the order received. Not called while the line is paused."""

    def state_changed(self, state: State) -> None:
        """Process a new state of the line."""


class LineAccess(Protocol):
    """Reads and writes a device line, for its holder."""

    @property
    def control(self) -> SerialControl | None:
        """The serial control of the open port; None if the line is not open, or is not a serial line."""

    @property
    def driven(self) -> Driven:
        """The control lines of the open port. Code that changes them must update this object."""

    async def write(self, data: bytes) -> None:
        """Write all of `data`, and wait while the line accepts no more. Make one call at a time.

        Raises `TransportClosed` while the line is not open, or when it is lost meanwhile.
        """

    def pause(self) -> None:
        """Stop reading; the device's data waits in its buffers. The listener gets no data after this returns."""

    def resume(self) -> None:
        """Continue reading."""


class BridgedLine(LineAccess, Protocol):
    """A device line that is opened again after each loss."""

    @property
    def name(self) -> str:
        """The name of the device, for people: its URL or its configured name."""

    @property
    def tap(self) -> Tap:
        """The tap, which gets everything that crosses the line, in both directions."""

    @property
    def state(self) -> State:
        """The present state of the line."""

    def attach(self, listener: Listener | None) -> None:
        """Replace the line's listener. The new one does not get the present state."""

    async def run(self) -> None:
        """Keep the line open until cancelled, then close it. A failure of the device does not end it."""

    def retry(self) -> None:
        """Open a lost line now instead of after the present wait, because a client needs the device."""
