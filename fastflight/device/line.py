"""The line of one device: the port behind its address, opened when it is first needed and then kept open.

`Device` calls `aensure_open` before each use, and `mark_lost` when the port fails. `mark_lost` counts the outage, keeps
the reason in `trouble`, and notifies the readers of `tap`; the caller closes the port. The next `aensure_open` opens
a new one. All bytes that cross the port, in both directions, go to the tap.

The methods do not lock: the caller must hold the device. Only `close` may be called at any time; a port that is being
opened meanwhile is closed again.
"""

from __future__ import annotations

import contextlib
import threading

from fastflight.concurrency import Shard, off_loop
from fastflight.concurrency.channel import runs_here
from fastflight.concurrency.portal import Portal
from fastflight.device.unread_input import UnreadInput
from fastflight.errors import TransportClosed, TransportError
from fastflight.lazy import Logger
from fastflight.transport import Address, Port, arun
from fastflight.transport.port import MovableAddress
from fastflight.transport.port_tap import BACKLOG_SECONDS, Guard, PortTap, receive_backlog, unguarded
from fastflight.transport.tap import Tap
from fastflight.transport.url import scheme_of

log = Logger(__name__)

# The kinds of addresses that start their device when they are opened.
STARTED = frozenset(("exec:", "sim:"))
# How long a line of its own waits for its loop to end.
CLOSE_SECONDS = 5.0
# Enough to start a child process, or to connect over a slow network.
OPEN_SECONDS = 10.0


class DeviceLine:
    """The line to the device `name` at `address`. `port` is the open port, or None."""

    def __init__(
        self,
        name: str,
        address: Address,
        guard: Guard = unguarded,
        *,
        shard: Shard | None = None,
        agent: bool = False,
    ) -> None:
        """`guard` is called before each write: see `PortTap`.

        The port lives on the loop of `shard`; without one, on a loop that is started when it is first needed.
        `agent`: the board's program runs the agent, whose frames come between its output.
        """
        self.name = name
        self._guard = guard
        self._shard = shard
        # The loop of a line that was given none.
        self._own_shard: Shard | None = None
        self._agent = agent
        self.address = address
        self.tap = Tap()
        # Whether to find the device by its identity from the first opening on: a port that is unplugged may come back
        # under another name, and another board may then have its name.
        self.follows = False
        # What the board has not read. A new port does not change that.
        self.unread = UnreadInput()
        self.port: Port | None = None
        # That of the open port, or of the last one.
        self.tapping = PortTap(self.tap)
        # Why the port was lost or cannot be opened; empty while the line works.
        self.trouble = ""
        # How often the port was lost, or could not be opened for listeners.
        self.outages = 0
        self.openings = 0
        # Output that the device sent before the port was opened may wait in the port. Not where opening the address
        # starts the device.
        self._starts_device = scheme_of(address.url) in STARTED
        self._may_have_backlog = not self._starts_device
        # A thread may still be opening the port when the line is closed.
        self._closing = threading.Lock()
        self._closed = False

    @property
    def shard(self) -> Shard:
        """The event loop on which the port lives."""
        if self._shard is not None:
            return self._shard
        with self._closing:
            self._check_open()
            if self._own_shard is None:
                self._own_shard = own_shard(self.name)
            return self._own_shard

    async def aensure_open(self) -> Port:
        """Return the open port, opening it if need be. `TransportError` when it cannot be opened."""
        if self.port is not None:
            return self.port
        self._check_open()
        port = await Portal(self.shard.loop, self.ended_error).acall(self.address.aopen(OPEN_SECONDS))
        if not self._adopt(port):
            await aclose(port)
            raise self.ended_error()
        if self.follows and isinstance(self.address, MovableAddress):
            self.address = await off_loop(self.address.identified)
        if self._may_have_backlog:
            with self.tapping.reading_backlog():
                await arun(receive_backlog(), port, timeout=BACKLOG_SECONDS)
        return port

    def mark_lost(self, error: TransportError) -> None:
        """Forget the port, which failed with `error`. The caller closes it."""
        self.port = None
        self.trouble = error.what
        self.outages += 1
        self.unread.forget_lines()
        self.tap.mark_lost()

    def close(self) -> None:
        """Close the port for good and end the readers of the tap. A thread that is opening the port gets an error."""
        with self._closing:
            self._closed = True
            port = self.port
        self.port = None
        if port is not None:
            close(port)
        self.tap.close()
        self.address.dispose()
        if self._own_shard is not None:
            self._own_shard.stop()
            if not runs_here(self._own_shard.loop):
                self._own_shard.join(CLOSE_SECONDS)

    def _check_open(self) -> None:
        if self._closed:
            raise TransportClosed(
                "its line was closed for good",
                where=self.name,
                hint="The device was removed, or the server ends: see `fastflight devices`",
            )

    def _adopt(self, port: Port) -> bool:
        """Make `port` the open port. Return false if the line was closed while the port was being opened."""
        with self._closing:
            if self._closed:
                return False
            can_wait = port.bytes_per_second is None
            self.tapping = PortTap(self.tap, self._guard, self.unread.received, can_wait=can_wait)
            port.tapping, self.port = self.tapping, port
        self.unread.forget(empty=self._starts_device)
        if self._agent:
            self.tapping.traffic.has_agent = True
        # The bytes of this port do not continue those of an earlier one.
        self.tap.cut(f"the line was lost: {self.trouble}" if self.trouble else "the line was opened")
        if self.trouble:
            log.info("device line reopened", device=self.name)
        self.trouble = ""
        self.openings += 1
        self.tap.nudge()
        return True

    def ended_error(self) -> TransportClosed:
        """Return the error that callers get if the line is closed while they wait for it."""
        return TransportClosed("closed while the line was opened", where=self.name, hint="Ask a running server")


def close(port: Port) -> None:
    """Close a port. Ignore errors of sending its last bytes, so that the caller goes on with closing."""
    with contextlib.suppress(TransportError):
        port.close()


async def aclose(port: Port) -> None:
    """As `close`."""
    with contextlib.suppress(TransportError):
        await port.aclose()


def own_shard(where: str) -> Shard:
    """Start the loop of one line. `TransportError` if the system has no descriptors for it."""
    try:
        return Shard("line").start()
    except OSError as error:
        raise TransportError(f"no event loop for the line ({error.strerror})", where=where) from error
