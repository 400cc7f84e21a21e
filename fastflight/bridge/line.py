"""The device line behind a bridge: it outlives its losses, and belongs to one event loop.

`BridgedLine.run` opens the line, reads it, and opens it again after a loss, until it is cancelled. What the line
receives goes to its tap first and then to its one `Listener`. A listener that cannot take more calls `pause`, and
receives nothing further until it calls `resume`. All calls are made on the loop that runs the line.
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
    """How the line is: `connecting` while an attempt to open it runs, `lost` between two attempts, with the reason."""

    phase: Phase
    reason: str = ""


@dataclass(slots=True)
class Driven:
    """How this side drives the control lines of an open port, which cannot be asked for it. They stay as one client
    left them for the next one."""

    dtr: bool = True
    rts: bool = True

    @classmethod
    def at_first(cls, address: Address) -> Driven:
        """As opening `address` leaves them: both asserted, as servers have them too, unless its URL says otherwise."""
        if isinstance(address, SerialAddress | Rfc2217Address):
            return cls(address.dtr is not False, address.rts is not False)
        return cls()


class Listener(Protocol):
    """Who is told what comes over the line. Neither method may block or raise."""

    def data_received(self, data: bytes) -> None:
        """At least one byte, in the order received. Not called while the line is paused."""

    def state_changed(self, state: State) -> None:
        """The line's state is another one now."""


class LineAccess(Protocol):
    """A device line to read and write, while it is one's own."""

    @property
    def control(self) -> SerialControl | None:
        """The port's serial control while the line is open and a serial one; else None."""

    @property
    def driven(self) -> Driven:
        """The control lines of the port that is open now, for whoever changes them to note."""

    def attach(self, listener: Listener | None) -> None:
        """Tell `listener` from now on, and nobody else. The present state is not told."""

    async def write(self, data: bytes) -> None:
        """Hand all of `data` to the line, waiting while it takes no more. One call at a time.

        `TransportClosed` while the line is not open, or when it is lost meanwhile.
        """

    def pause(self) -> None:
        """Read no further: what the device sends stays where it is. Nothing is told after this returns."""

    def resume(self) -> None:
        """Read on."""


class BridgedLine(LineAccess, Protocol):
    """A device line that outlives its losses."""

    @property
    def name(self) -> str:
        """The device as people know it: its URL or its name."""

    @property
    def tap(self) -> Tap:
        """Where everything that crosses the line is seen, both directions."""

    @property
    def state(self) -> State:
        """How the line is now."""

    async def run(self) -> None:
        """Keep the line open until cancelled; closes it then. Never ends by a failure of the device."""

    def retry(self) -> None:
        """Somebody wants the device: open a lost line now, not later."""
