"""Opens a port for a thread, on a loop of its own."""

from __future__ import annotations

from typing import Any

from fastflight.concurrency import Shard
from fastflight.concurrency.portal import Portal
from fastflight.errors import TransportClosed, TransportError


class LoopAddress:
    """The blocking `open` of an address, and a `dispose` without effect. A subclass has `aopen`."""

    url: str

    async def aopen(self, timeout: float) -> Any:
        """Open the port on the running loop."""
        raise NotImplementedError

    def open(self, timeout: float) -> Any:
        """Open the port on a loop of its own, which ends with the port."""
        shard = own_shard(self.url)
        try:
            port = Portal(shard.loop, self._loop_ended).call(self.aopen(timeout))
        except BaseException:
            shard.close()
            raise
        port._own_shard = shard
        return port

    def dispose(self) -> None:
        """Release what the address itself holds: nothing, unless a subclass overrides this."""

    def _loop_ended(self) -> TransportError:
        return TransportClosed("closed while the line was opened", where=self.url, hint="Ask a running server")


def own_shard(where: str) -> Shard:
    """Start the loop of one line. `TransportError` if the system has no descriptors for it."""
    try:
        return Shard("line").start()
    except OSError as error:
        raise TransportError(f"no event loop for the line ({error.strerror})", where=where) from error
