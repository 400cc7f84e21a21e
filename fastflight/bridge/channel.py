"""Reads an open port for its listener, and writes to it, while a client of a bridge holds the device."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

import structlog

from fastflight.errors import TransportError, TransportTimeout
from fastflight.transport import Address, Port, SerialControl
from fastflight.transport.rfc2217 import Rfc2217Address
from fastflight.transport.serial import SerialAddress

log = structlog.get_logger(__name__)

# The timeout of a read that waits without limit: it is repeated once an hour.
QUIET_SECONDS = 3600.0
# A device that accepts no byte for this long has stopped: its flow control is on, or it hangs.
WRITE_SECONDS = 30.0


@dataclass(slots=True)
class Driven:
    """The states of DTR and RTS as this side last set them, because a port cannot be asked for them.

    They stay as they are when a client leaves: the next client starts with them.
    """

    dtr: bool = True
    rts: bool = True

    @classmethod
    def at_first(cls, address: Address) -> Driven:
        """Return the states right after `address` is opened: both asserted, unless its URL says otherwise.

        Remote servers open their ports in the same way.
        """
        if isinstance(address, SerialAddress | Rfc2217Address):
            return cls(address.dtr is not False, address.rts is not False)
        return cls()


class Listener(Protocol):
    """Receives the data of a port. Neither method may block or raise."""

    def data_received(self, data: bytes) -> None:
        """Process at least one byte, in the order received. Not called while the channel is paused."""

    def line_lost(self, reason: str) -> None:
        """Learn that the port has failed: no more data will come."""


class PortChannel:
    """An open port, for its holder. `run` reads it until it is cancelled or the port fails; `failure` has the error.

    When the listener cannot take more data, call `pause`: it gets nothing until `resume` is called, and the device's
    data waits in its buffers. Code that changes the control lines of the port must update `driven`.
    """

    def __init__(self, port: Port, listener: Listener, driven: Driven) -> None:
        self._port = port
        self.driven = driven
        self._listener = listener
        self._reading = asyncio.Event()
        self._reading.set()
        self.failure: TransportError | None = None

    @property
    def control(self) -> SerialControl | None:
        """The serial control of the port; None if it is not a serial line."""
        return self._port if isinstance(self._port, SerialControl) else None

    async def run(self) -> None:
        """Pass what the port receives to the listener, until cancelled or until the port fails. Does not raise."""
        try:
            while True:
                await self._reading.wait()
                try:
                    data = await self._port.aread(QUIET_SECONDS)
                except TransportTimeout:
                    continue
                # `pause` may have been called during the read: then the data waits here.
                await self._reading.wait()
                self._listener.data_received(data)
                # A device that floods its line is always ready: let the loop's other tasks run.
                await asyncio.sleep(0)
        except TransportError as error:
            self._fail(error)
        except Exception as error:  # the task's edge: the failure is reported to the client that holds the line
            log.exception("reading a line failed")
            self._fail(TransportError.unexpected(error))

    async def write(self, data: bytes) -> None:
        """Write all of `data`, and wait while the line accepts no more. Make one call at a time.

        Raises `TransportError` if the line fails.
        """
        try:
            await self._port.awrite(data, WRITE_SECONDS)
        except TransportError as error:
            self._fail(error)
            raise

    def pause(self) -> None:
        """Stop reading; the listener gets no data after this returns."""
        self._reading.clear()

    def resume(self) -> None:
        """Continue reading."""
        self._reading.set()

    def _fail(self, error: TransportError) -> None:
        if self.failure is None:
            self.failure = error
            self._listener.line_lost(str(error))
