"""`relay://host:port`: no line of its own, but what the gateway's relay carries to and from that target.

Such a device is only heard: whoever relays feeds its tap, and its port brings nothing. A client of the relay is who
talks to the target; there may be several, and none.
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
    """A target as the relay's rules name it: a name, or an address."""

    url: str
    host: str
    port: int

    @property
    def target(self) -> str:
        """As in a rule of the relay."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def open(self, timeout: float) -> RelayedPort:
        """There is nothing to open, so that cannot fail."""
        return RelayedPort()

    def dispose(self) -> None:
        """Nothing was kept."""


class RelayedPort:
    """A port on which nothing comes: the relay feeds the tap itself."""

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
