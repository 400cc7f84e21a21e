"""Reads an open port for its listener, and writes to it, while a client of a bridge holds the device."""

from __future__ import annotations

import asyncio

import structlog

from fastflight.bridge.line import Driven, Listener, State
from fastflight.errors import TransportError, TransportTimeout
from fastflight.transport import Port, SerialControl

log = structlog.get_logger(__name__)

# The timeout of a read or a write that waits without limit: it is repeated once an hour.
QUIET_SECONDS = 3600.0
# A device that accepts no byte for this long has stopped: its flow control is on, or it hangs.
WRITE_SECONDS = 30.0


class PortChannel:
    """`LineAccess` to an open port. `run` reads it until it is cancelled or the port fails; `failure` has the error."""

    def __init__(self, port: Port, listener: Listener, driven: Driven) -> None:
        self._port = port
        self.driven = driven
        self._listener = listener
        self._reading = asyncio.Event()
        self._reading.set()
        self.failure: TransportError | None = None

    @property
    def control(self) -> SerialControl | None:
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
        try:
            await self._port.awrite(data, WRITE_SECONDS)
        except TransportError as error:
            self._fail(error)
            raise

    def pause(self) -> None:
        self._reading.clear()

    def resume(self) -> None:
        self._reading.set()

    def _fail(self, error: TransportError) -> None:
        if self.failure is None:
            self.failure = error
            self._listener.state_changed(State("lost", str(error)))
