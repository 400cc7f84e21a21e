"""Where a device is now: a port that was pulled may come back under another name.

What a USB port keeps is its serial number, or the socket that it is in. It is noted at the first opening; from then on
the device is looked up by it, so that another board under the old name is not taken for this one. An address that
cannot move is opened as it is. Blocking, as listing the ports of a computer is.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from fastflight.errors import TransportClosed
from fastflight.transport import Address, Port


@runtime_checkable
class Movable(Protocol):
    """An address whose device has an identity of its own, as a serial port has."""

    def identity(self) -> Any | None:
        """What the device keeps wherever it is; None when it keeps nothing. Asked while it is there."""

    def find(self, identity: Any) -> str | None:
        """The name that the device has now; None while it is not there."""

    def at(self, name: str) -> Address:
        """The same address under another name."""


class Whereabouts:
    """Opens the device of `address`, wherever it is."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._identity: Any | None = None

    def open(self, timeout: float) -> Port:
        """As the address does. `TransportClosed` while a device that was there is not."""
        if not isinstance(self._address, Movable):
            return self._address.open(timeout)
        if self._identity is None:
            port = self._address.open(timeout)
            self._identity = self._address.identity()
            return port
        name = self._address.find(self._identity)
        if name is None:
            raise TransportClosed(
                f"the port with {self._identity} is not there", where=self._address.url, hint="Plug it in again"
            )
        return self._address.at(name).open(timeout)
