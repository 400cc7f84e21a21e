"""A port as a channel: read for its listener for as long as somebody has it."""

from __future__ import annotations

import asyncio

import structlog

from fastflight.bridge.line import Driven, Listener, State
from fastflight.errors import TransportError, TransportTimeout
from fastflight.transport import Port, SerialControl

log = structlog.get_logger(__name__)

# A quiet device is waited for again after this: a timer that fires once an hour.
QUIET_SECONDS = 3600.0
# A device that takes no byte for so long will not: its flow control is held, or it hangs.
WRITE_SECONDS = 30.0


class PortChannel:
    """An open port. `run` reads it until cancelled, or until the port fails: `failure` says how."""

    def __init__(self, port: Port, listener: Listener, driven: Driven) -> None:
        self._port = port
        self.driven = driven
        self._listener: Listener | None = listener
        self._reading = asyncio.Event()
        self._reading.set()
        self.failure: TransportError | None = None

    @property
    def control(self) -> SerialControl | None:
        return self._port if isinstance(self._port, SerialControl) else None

    def attach(self, listener: Listener | None) -> None:
        self._listener = listener

    async def run(self) -> None:
        """Read the port."""
        try:
            while True:
                await self._reading.wait()
                try:
                    data = await self._port.aread(QUIET_SECONDS)
                except TransportTimeout:
                    continue
                # Paused while the read was on its way: the data waits here.
                await self._reading.wait()
                if self._listener is not None:
                    self._listener.data_received(data)
                # A device that floods its line is always ready: let the loop's other tasks run.
                await asyncio.sleep(0)
        except TransportError as error:
            self._fail(error)
        except Exception as error:  # the task's edge: the client that has the line is told
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
            if self._listener is not None:
                self._listener.state_changed(State("lost", str(error)))
