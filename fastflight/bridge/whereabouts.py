"""Opens a device again after its port has got another name.

A USB port that is unplugged may come back under another name. It keeps its serial number, or the USB socket that it is
in. `Whereabouts` reads this identity at the first opening and finds the device by it from then on, so it does not take
another board under the old name for this one. An address that cannot move is opened as it is.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from fastflight.concurrency import off_loop
from fastflight.errors import TransportClosed
from fastflight.transport import Address, Port


@runtime_checkable
class Movable(Protocol):
    """An address whose device has an identity besides its name, as a serial port has."""

    def identity(self) -> Any | None:
        """Return what identifies the device under any name; None if nothing does. Call it while the device is there."""

    def find(self, identity: Any) -> str | None:
        """Return the present name of the device; None while it is not there."""

    def at(self, name: str) -> Address:
        """Return the same address with another name."""


class Whereabouts:
    """Opens the device of `address` under its present name."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._identity: Any | None = None

    async def aopen(self, timeout: float) -> Port:
        """Open the device within `timeout` seconds, on the running loop.

        Raises `TransportClosed` while a device with a known identity is not there.
        """
        if not isinstance(self._address, Movable):
            return await self._address.aopen(timeout)
        if self._identity is None:
            port = await self._address.aopen(timeout)
            self._identity = await off_loop(self._address.identity)
            return port
        name = await off_loop(self._address.find, self._identity)
        if name is None:
            raise TransportClosed(
                f"the port with {self._identity} is not there", where=self._address.url, hint="Plug it in again"
            )
        return await self._address.at(name).aopen(timeout)
