"""Opens ports that live on a loop: for threads, and for coroutines of that loop."""

from __future__ import annotations

from typing import Any

from fastflight.concurrency import Shard, off_loop
from fastflight.concurrency.portal import Portal
from fastflight.errors import TransportClosed, TransportError
from fastflight.transport.port import Address, AsyncAddress, Port


class LoopAddress:
    """The blocking `open` of an address whose ports live on a loop. A subclass has `aopen`."""

    url: str

    async def aopen(self, timeout: float) -> Any:
        """Open the port on the running loop."""
        raise NotImplementedError

    def open(self, timeout: float, shard: Shard | None = None) -> Any:
        """Open the port on `shard`, or on a loop of its own, which ends with the port."""
        own = None
        try:
            if shard is None:
                own = shard = Shard("line").start()
            port = Portal(shard.loop, self._loop_ended).call(self.aopen(timeout))
        except BaseException as error:
            if own is not None:
                own.close()
            if isinstance(error, OSError):  # no descriptor for the loop
                raise TransportError(f"no event loop for the line ({error.strerror})", where=self.url) from error
            raise
        port._own_shard = own
        return port

    def _loop_ended(self) -> TransportError:
        return TransportClosed("closed while the line was opened", where=self.url, hint="Ask a running server")


async def open_port(address: Address, timeout: float) -> Port:
    """Open an address on the running loop: in a thread if the address has no `aopen`."""
    if isinstance(address, AsyncAddress):
        return await address.aopen(timeout)
    return await off_loop(address.open, timeout, discard=lambda port: port.close())
