"""The interfaces of a transport: an `Address` opens a `Port` (`loop_port`), a byte stream on an event loop.

A port of a real serial line, local or behind RFC 2217, is also a `SerialControl`: its speed and control lines can be
set. Test for that with `isinstance`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from fastflight.transport.loop_port import Port

# The size of one read: large enough that system calls do not limit a fast line, small enough to allocate each time.
READ_BYTES = 256 * 1024


Parity = Literal["N", "O", "E", "M", "S"]


@dataclass(frozen=True, slots=True)
class LineSettings:
    """The settings of a serial line: bits per second, bits per character, parity, stop bits (1, 1.5 or 2)."""

    baud: int = 115200
    data_bits: int = 8
    parity: Parity = "N"
    stop_bits: float = 1.0

    @property
    def bytes_per_second(self) -> float:
        """The capacity in each direction. A byte takes a start bit, the data bits, the parity bit and the stop bits."""
        return self.baud / (1 + self.data_bits + (self.parity != "N") + self.stop_bits)


@dataclass(frozen=True, slots=True)
class ModemLines:
    """The control lines that the other side of a serial line drives. True means asserted."""

    cts: bool = False
    dsr: bool = False
    ri: bool = False
    cd: bool = False


class AsyncStream(Protocol):
    """What a conversation needs of a port."""

    async def aread(self, timeout: float) -> bytes:
        """Return at least one byte. `TransportTimeout` if none arrives for `timeout` seconds."""

    async def awrite(self, data: bytes, timeout: float) -> None:
        """Hand all of `data` to the line, at once or soon. `timeout` bounds the time without progress, in seconds."""

    async def adrain(self, timeout: float) -> None:
        """Hand all written bytes to the line now. `timeout` bounds the time without progress, in seconds."""


@runtime_checkable
class SerialControl(Protocol):
    """The control of a real serial line. `timeout` bounds the wait for a remote server, in seconds."""

    @property
    def settings(self) -> LineSettings:
        """The current settings."""

    async def aconfigure(self, settings: LineSettings, timeout: float) -> None:
        """Apply `settings`. `TransportError` if the port does not support them."""

    async def aassign(
        self, timeout: float, *, dtr: bool | None = None, rts: bool | None = None, sending_break: bool | None = None
    ) -> None:
        """Set the control lines that are not None."""

    async def apurge(self, timeout: float, *, received: bool = False, unsent: bool = False) -> None:
        """Discard the bytes in the port's buffers: received ones that are not read yet, and unsent ones."""

    async def amodem(self, timeout: float) -> ModemLines:
        """Return the current state of the lines that the other side drives. `TransportError` if there are none."""


class Address(Protocol):
    """Where a device is. Keeps what must outlive a single opening, such as the simulated board's files."""

    @property
    def url(self) -> str:
        """The URL of the device, without what may be secret in it."""

    async def aopen(self, timeout: float) -> Port:
        """Open the line on the running loop, within `timeout` seconds. If cancelled, it leaves nothing open.

        `TransportError`, with a hint, if it cannot be opened.
        """

    def dispose(self) -> None:
        """Release what the address itself holds. No port of it may be open."""


class StatelessAddress:
    """The base of addresses that hold nothing."""

    def dispose(self) -> None:
        """Do nothing."""


@runtime_checkable
class MovableAddress(Address, Protocol):
    """An address whose device may come back under another name."""

    def identified(self) -> Address:
        """Return the same address by what identifies the device under any name. Call it while the device is there."""


@runtime_checkable
class LockedAddress(Address, Protocol):
    """An address whose device asks for a password. At most one of the first two says where it is."""

    @property
    def password_file(self) -> str | None:
        """The name of a file with the password."""

    @property
    def password_env(self) -> str | None:
        """The name of a variable of the environment with the password."""

    def unlocked(self, password: str) -> Address:
        """Return the same address with its password."""
