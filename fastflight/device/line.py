"""The line of one device: the port behind its address, opened when it is first needed and kept open.

`Device` asks for the open port before each use, and says `lost` when the port fails. Then the line closes its books:
it counts the outage, remembers the reason in `trouble`, and tells the readers of its `tap`. The next use opens the
port anew. What crosses the port, in either direction, goes to the tap.

The methods do not lock: whoever uses them has the device. `close` alone may come at any time, and a port that is
opened meanwhile is closed again.
"""

from __future__ import annotations

import contextlib
import threading

import structlog

from fastflight.concurrency import off_loop
from fastflight.errors import RequestError, TransportClosed, TransportError
from fastflight.transport import Address, AsyncAddress, Port, arun, run
from fastflight.transport.exec import ExecAddress
from fastflight.transport.relayed import RelayedAddress
from fastflight.transport.sim import SimAddress
from fastflight.transport.tap import Tap
from fastflight.transport.tapped import WAITED_SECONDS, TappedPort, tapped, what_waited

log = structlog.get_logger(__name__)

# Starting a child or connecting over a slow network.
OPEN_SECONDS = 10.0


class DeviceLine:
    """The line to the device `name` at `address`. `port` is the open port, None while there is none."""

    def __init__(self, name: str, address: Address) -> None:
        self.name = name
        self.address = address
        self.tap = Tap()
        self.port: TappedPort | None = None
        # Why the port was lost or cannot be opened; empty while it is open and well.
        self.trouble = ""
        # How often the port was lost, or could not be opened for those that listen.
        self.outages = 0
        self.openings = 0
        # The relay feeds the tap of such a line. It has no port to write to.
        self._only_heard = isinstance(address, RelayedAddress)
        # These addresses start what is behind them: nothing was said before the port was opened.
        self._may_have_waited = not isinstance(address, ExecAddress | RelayedAddress | SimAddress)
        # A thread may still be opening the port when the line is closed.
        self._closing = threading.Lock()
        self._closed = False

    def check(self) -> None:
        """`RequestError` for a line that can only be heard."""
        if self._only_heard:
            raise RequestError(
                "only heard: it is what the relay carries to a target",
                where=self.name,
                hint="Read its session, or a recording of it; talk to the target through the relay",
            )

    def opened(self) -> TappedPort:
        """The open port. `TransportError` when it cannot be opened."""
        if self.port is not None:
            return self.port
        port = tapped(self.address.open(OPEN_SECONDS), self.tap)
        if not self._keep(port):
            close(port)
            raise self._closed_meanwhile()
        if self._may_have_waited:
            with port.opening():
                run(what_waited(), port, timeout=WAITED_SECONDS)
        return port

    async def aopened(self) -> TappedPort:
        """As `opened`."""
        if self.port is not None:
            return self.port
        port = tapped(await open_port(self.address), self.tap)
        if not self._keep(port):
            await aclose(port)
            raise self._closed_meanwhile()
        if self._may_have_waited:
            with port.opening():
                await arun(what_waited(), port, timeout=WAITED_SECONDS)
        return port

    def lost(self, error: TransportError) -> None:
        """Forget the port, which failed with `error`. The caller closes it."""
        self.port = None
        self.trouble = error.what
        self.outages += 1
        self.tap.lost()

    def close(self) -> None:
        """Close the port for good and end the readers of the tap. A thread that opens the port gets an error."""
        with self._closing:
            self._closed = True
            port = self.port
        self.port = None
        if port is not None:
            close(port)
        self.tap.close()
        self.address.dispose()

    def _keep(self, port: TappedPort) -> bool:
        """Use `port` from now on; false where the line was closed while the port was opened."""
        with self._closing:
            if self._closed:
                return False
            self.port = port
        # What comes now does not continue what an earlier port brought.
        if not self._only_heard:
            self.tap.cut(f"the line was lost: {self.trouble}" if self.trouble else "the line was opened")
            if self.trouble:
                log.info("device is heard again", device=self.name)
        self.trouble = ""
        self.openings += 1
        self.tap.nudge()
        return True

    def _closed_meanwhile(self) -> TransportClosed:
        return TransportClosed("closed while the line was opened", where=self.name, hint="Ask a server that runs")


async def open_port(address: Address) -> Port:
    """Open an address from a coroutine, in a thread where it only knows how to block."""
    if isinstance(address, AsyncAddress):
        return await address.aopen(OPEN_SECONDS)
    return await off_loop(address.open, OPEN_SECONDS, discard=close)


def close(port: Port) -> None:
    """Close a port. Errors while it sends its last bytes are passed over: whatever is closed next must be closed."""
    with contextlib.suppress(TransportError):
        port.close()


async def aclose(port: Port) -> None:
    """As `close`."""
    with contextlib.suppress(TransportError):
        await port.aclose()
