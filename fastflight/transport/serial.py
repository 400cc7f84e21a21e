"""`serial:///dev/ttyACM0?baud=115200`: a serial port, by pyserial from threads and pyserial-asyncio from event loops.

pyserial-asyncio reads ahead into its protocol; here it reads only while a coroutine waits in `aread`, so that a thread
may use the port in between. Bytes that came with the last read are kept for whoever reads next.
"""

from __future__ import annotations

import asyncio
import errno
from dataclasses import dataclass

import serial
import serial_asyncio
from serial.tools import list_ports

from fastflight.errors import TransportClosed, TransportError, TransportTimeout
from fastflight.transport.port import READ_BYTES

DEFAULT_BAUD = 115200
# At 9600 baud this much is on the wire within a write's deadline, so a deadline means no progress.
WRITE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class SerialAddress:
    """A serial port by its system name. `dtr` and `rts` are set before opening when given: they reset some boards."""

    url: str
    name: str
    baud: int = DEFAULT_BAUD
    dtr: bool | None = None
    rts: bool | None = None

    def open(self, timeout: float) -> SerialPort:
        port = serial.Serial()
        port.port = self.name
        port.baudrate = self.baud
        port.exclusive = True
        if self.dtr is not None:
            port.dtr = self.dtr
        if self.rts is not None:
            port.rts = self.rts
        try:
            port.open()
        except (OSError, ValueError) as error:
            # pyserial's SerialException is an OSError whose errno is that of the system, where there was one.
            raise TransportError(
                "cannot open the serial port", where=self.url, hint=_advice(getattr(error, "errno", None))
            ) from error
        return SerialPort(port, self.url)

    def dispose(self) -> None:
        """A serial address holds nothing."""


def _advice(code: int | None) -> str:
    if code == errno.EACCES:
        return "You may not use it: add yourself to the group that owns it (often dialout or uucp) and log in again"
    if code in (errno.EBUSY, errno.EAGAIN, errno.EWOULDBLOCK):
        return "Another program has it open: close that first"
    found = ", ".join(sorted(port.device for port in list_ports.comports())) or "none"
    return f"Check its name and the cable. Ports found here: {found}"


class SerialPort:
    """An open serial port."""

    def __init__(self, port: serial.Serial, where: str) -> None:
        self._port = port
        self._where = where
        self._channel: _Channel | None = None
        self._received = bytearray()
        self._closed = False

    @property
    def bytes_per_second(self) -> float | None:
        # A start bit, eight data bits, a stop bit.
        return float(self._port.baudrate) / 10

    def read(self, timeout: float) -> bytes:
        if self._received:
            return self._take()
        try:
            # Setting it reconfigures the port, so only when it changed.
            if self._port.timeout != timeout:
                self._port.timeout = timeout
            data: bytes = self._port.read(1)
            if data:
                data += self._port.read(min(self._port.in_waiting, READ_BYTES))
        except (OSError, TypeError) as error:
            # pyserial raises TypeError when the port is closed under a waiting read.
            raise self._gone(error) from error
        if self._closed:
            raise self._closed_here()
        if not data:
            raise self._timed_out("sent nothing", timeout)
        return data

    def write(self, data: bytes, timeout: float) -> None:
        try:
            if self._port.write_timeout != timeout:
                self._port.write_timeout = timeout
            for start in range(0, len(data), WRITE_BYTES):
                self._port.write(data[start : start + WRITE_BYTES])
        except serial.SerialTimeoutException as error:
            raise self._timed_out("took no byte", timeout) from error
        except (OSError, TypeError) as error:
            raise self._gone(error) from error

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._port.cancel_read()
            self._port.close()

    async def aread(self, timeout: float) -> bytes:
        if self._received:
            return self._take()
        channel = await self._attached()
        try:
            async with asyncio.timeout(timeout):
                await channel.receive()
        except TimeoutError:
            raise self._timed_out("sent nothing", timeout) from None
        except OSError as error:
            raise self._gone(error) from error
        return self._take()

    async def awrite(self, data: bytes, timeout: float) -> None:
        channel = await self._attached()
        try:
            for start in range(0, len(data), WRITE_BYTES):
                async with asyncio.timeout(timeout):
                    await channel.send(data[start : start + WRITE_BYTES])
        except TimeoutError:
            raise self._timed_out("took no byte", timeout) from None
        except OSError as error:
            raise self._gone(error) from error

    async def aclose(self) -> None:
        if self._channel is not None:
            self._channel.detach()
            self._channel = None
        self.close()

    async def _attached(self) -> _Channel:
        """pyserial-asyncio's transport on the running loop."""
        loop = asyncio.get_running_loop()
        if self._closed:
            raise self._closed_here()
        if self._channel is None or self._channel.loop is not loop:
            self._channel = _Channel(loop, self._port, self._received)
            await self._channel.ready()
        # A blocking call in between gave the port timeouts.
        if self._port.timeout != 0 or self._port.write_timeout != 0:
            self._port.timeout = 0
            self._port.write_timeout = 0
        return self._channel

    def _take(self) -> bytes:
        data = bytes(self._received)
        self._received.clear()
        return data

    def _timed_out(self, what: str, timeout: float) -> TransportTimeout:
        return TransportTimeout(f"the device {what} for {timeout:g} s", where=self._where)

    def _closed_here(self) -> TransportClosed:
        return TransportClosed("the line was closed on this side", where=self._where)

    def _gone(self, error: Exception) -> TransportClosed:
        return TransportClosed(f"the serial port went away ({error})", where=self._where, hint="Plug it in again")


class _Channel(asyncio.Protocol):
    """pyserial-asyncio's transport, reading only on request and telling when all is written."""

    def __init__(self, loop: asyncio.AbstractEventLoop, port: serial.Serial, received: bytearray) -> None:
        self.loop = loop
        self._received = received
        self._error: OSError | None = None
        self._came: asyncio.Future[None] | None = None
        self._drained = asyncio.Event()
        self._drained.set()
        self._transport = serial_asyncio.SerialTransport(loop, self, port)
        # Every byte counts as unsent until the system has taken it.
        self._transport.set_write_buffer_limits(high=0, low=0)

    async def ready(self) -> None:
        """Let the transport's own start-up pass, which begins to read, and stop that."""
        await asyncio.sleep(0)
        self._transport.pause_reading()

    async def receive(self) -> None:
        """At least one byte more in `received`."""
        if self._error is not None:
            raise self._error
        self._came = self.loop.create_future()
        self._transport.resume_reading()
        try:
            await self._came
        finally:
            self._came = None
            if self._error is None:
                self._transport.pause_reading()

    async def send(self, data: bytes) -> None:
        """All of `data` taken by the system."""
        if self._error is not None:
            raise self._error
        self._transport.write(data)
        try:
            await self._drained.wait()
        except asyncio.CancelledError:
            # Nobody waits for the rest, and nobody may be surprised by it later.
            self._transport.flush()
            raise
        if self._error is not None:
            raise self._error

    def detach(self) -> None:
        """Leave the loop. Not the transport's own close: that waits for the line, on the loop."""
        if self._error is None:
            self._transport.pause_reading()
            self._transport.flush()

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._came is not None and not self._came.done():
            self._came.set_result(None)

    def pause_writing(self) -> None:
        self._drained.clear()

    def resume_writing(self) -> None:
        self._drained.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._error = exc if isinstance(exc, OSError) else OSError("the port was closed")
        self._drained.set()
        if self._came is not None and not self._came.done():
            self._came.set_exception(self._error)
