"""What a transport is: an open byte stream to a device, usable from a thread or from an event loop.

A `Port` is open. Its owner uses either its blocking methods or its coroutines, never both at once, and may change
between them whenever no call is running: bytes that arrived meanwhile are given to whoever reads next. Every wait has
a deadline. All failures are `TransportClosed`, `TransportTimeout` or `TransportError`.

A port that stands for a real serial line, here or behind RFC 2217, is a `SerialControl` too: its speed and its control
lines can be set. Find out with `isinstance`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

# One read: large enough that an unlimited line is not bound by system calls, small enough to be a cheap buffer.
READ_BYTES = 256 * 1024


Parity = Literal["N", "O", "E", "M", "S"]


@dataclass(frozen=True, slots=True)
class LineSettings:
    """How a serial line is driven: bits per second, bits per character, parity, stop bits (1, 1.5 or 2)."""

    baud: int = 115200
    data_bits: int = 8
    parity: Parity = "N"
    stop_bits: float = 1.0

    @property
    def bytes_per_second(self) -> float:
        """What the line carries each way: a start bit, the character, its parity, the stop bits."""
        return self.baud / (1 + self.data_bits + (self.parity != "N") + self.stop_bits)


@dataclass(frozen=True, slots=True)
class ModemLines:
    """The lines that the other side of a serial line drives; true is asserted."""

    cts: bool = False
    dsr: bool = False
    ri: bool = False
    cd: bool = False


class Port(Protocol):
    """An open byte stream."""

    @property
    def bytes_per_second(self) -> float | None:
        """What the line carries each way at most; None when unknown, as for a socket or a pseudo-terminal."""

    def read(self, timeout: float) -> bytes:
        """At least one byte, or `TransportTimeout` after `timeout` seconds."""

    def write(self, data: bytes, timeout: float) -> None:
        """Hand all of `data` to the line. `timeout` bounds the time without progress."""

    def close(self) -> None:
        """Give the line back; safe to call twice and while another thread waits in `read`."""

    async def aread(self, timeout: float) -> bytes:
        """As `read`."""

    async def awrite(self, data: bytes, timeout: float) -> None:
        """As `write`."""

    async def aclose(self) -> None:
        """As `close`."""


@runtime_checkable
class SerialControl(Protocol):
    """What a port that is a real serial line can do beyond carrying bytes. `timeout` bounds a remote answer."""

    @property
    def settings(self) -> LineSettings:
        """As they are now."""

    def configure(self, settings: LineSettings, timeout: float) -> None:
        """Drive the line so. `TransportError` when the port cannot."""

    def assign(
        self, timeout: float, *, dtr: bool | None = None, rts: bool | None = None, sending_break: bool | None = None
    ) -> None:
        """Set the control lines that are not None."""

    def purge(self, timeout: float, *, received: bool = False, unsent: bool = False) -> None:
        """Throw away what waits in the port's buffers."""

    def modem(self, timeout: float) -> ModemLines:
        """The lines that the other side drives, now. `TransportError` where there are none."""

    async def aconfigure(self, settings: LineSettings, timeout: float) -> None:
        """As `configure`."""

    async def aassign(
        self, timeout: float, *, dtr: bool | None = None, rts: bool | None = None, sending_break: bool | None = None
    ) -> None:
        """As `assign`."""

    async def apurge(self, timeout: float, *, received: bool = False, unsent: bool = False) -> None:
        """As `purge`."""

    async def amodem(self, timeout: float) -> ModemLines:
        """As `modem`."""


@runtime_checkable
class Gathering(Protocol):
    """A port that may keep what `awrite` took for a moment, to send more at once. Reading sends it first."""

    async def adrain(self, timeout: float) -> None:
        """Hand what was gathered to the line now. `timeout` bounds the time without progress."""


@runtime_checkable
class Pouring(Protocol):
    """A port that can be read without a wake-up of the reader for each read: many idle lines cost little then."""

    async def apour(self, give: Callable[[bytes], object]) -> None:
        """Call `give` on the loop with what comes, as it comes; nothing that was taken is lost.

        Returns soon after `give` returned true: no more is to be read for now.

        Fails as `aread` does, but silence is no failure.
        """


class Address(Protocol):
    """Where a device is. Holds what must outlive a single opening (the simulated board's files)."""

    @property
    def url(self) -> str:
        """As the user wrote it."""

    def open(self, timeout: float) -> Port:
        """Open the line. Raises `TransportError` when it cannot be opened, saying what to do."""

    def dispose(self) -> None:
        """Give back what the address itself holds. No port of it may be open."""


@runtime_checkable
class AsyncAddress(Protocol):
    """An address whose line is opened on an event loop, without a thread that waits for it."""

    async def aopen(self, timeout: float) -> Port:
        """As `open`. Cancelled, it leaves nothing open."""
