"""`relay://host:port`: a device that shows the traffic between the gateway's relay and one of its targets.

Such a device has no line of its own and is read-only. The relay feeds the device's tap; nothing can be read from its
port. Clients of the relay, any number of them, talk to the target.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass

from fastflight.errors import TransportClosed, TransportTimeout

WHERE = "relay"


@dataclass(frozen=True, slots=True)
class RelayedAddress:
    """A target of the relay: `host` is a name or an IP address, as in the relay's rules."""

    url: str
    host: str
    port: int

    @property
    def target(self) -> str:
        """The target as the relay's rules spell it: `host:port`, with brackets around an IPv6 address."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def open(self, timeout: float) -> RelayedPort:
        """Return a port. There is nothing to open, so this cannot fail."""
        return RelayedPort()

    def dispose(self) -> None:
        """Do nothing: the address holds nothing."""


class RelayedPort:
    """A port that never receives a byte and accepts no write: the relay feeds the tap directly."""

    def __init__(self) -> None:
        self._closed = threading.Event()

    @property
    def bytes_per_second(self) -> float | None:
        return None

    def read(self, timeout: float) -> bytes:
        if self._closed.wait(timeout):
            raise TransportClosed("the port is closed", where=WHERE)
        raise TransportTimeout("nothing comes this way", where=WHERE)

    def write(self, data: bytes, timeout: float) -> None:
        raise TransportClosed("nothing goes this way", where=WHERE, hint="Open a stream through the relay")

    def close(self) -> None:
        self._closed.set()

    async def aread(self, timeout: float) -> bytes:
        await asyncio.sleep(0 if self._closed.is_set() else timeout)
        return self.read(0)

    async def awrite(self, data: bytes, timeout: float) -> None:
        self.write(data, timeout)

    async def aclose(self) -> None:
        self.close()

    async def apour(self, give: Callable[[bytes], object]) -> None:
        await asyncio.get_running_loop().create_future()
