"""An open serial port: pyserial from threads, and a channel from event loops, pyserial-asyncio's or two threads.

Writes from a loop are gathered (`Pacing`) and go out when enough is together, when time is up, and at once when
somebody waits for bytes, drains or closes. What goes wrong meanwhile is told by the next call, which drops what it
names as not sent. A write that is cancelled takes back what the system does not have yet, and never what earlier calls
wrote.

A thread may use the port when no coroutine does: it sends what was gathered first, and gets what came.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import NoReturn

import serial

from fastflight.concurrency import off_loop
from fastflight.concurrency.offload import unbroken
from fastflight.errors import TransportClosed, TransportTimeout
from fastflight.transport.outbox import Outbox
from fastflight.transport.pacing import DEFAULT, LIMITS, Pacing
from fastflight.transport.port import READ_BYTES, LineSettings, ModemLines
from fastflight.transport.serial_aio import AioChannel
from fastflight.transport.serial_lines import BY_DESCRIPTOR, FAILURES, Lines, receive, send
from fastflight.transport.serial_pump import Pump
from fastflight.transport.watch import ran_out

# What is not sent yet when the port is closed has this long without progress. A driver that still had some of it would
# wait in `close` by itself, for 30 s on Linux while the flow is stopped.
CLOSE_SECONDS = 1.0
CLOSE_POLL_SECONDS = 0.01


class SerialPort:
    """An open serial port; a `SerialControl` too."""

    def __init__(self, port: serial.Serial, where: str, pacing: Pacing = DEFAULT) -> None:
        self._port = port
        self._where = where
        self._pacing = pacing
        self._lines = Lines(port, where)
        self._received = bytearray()
        self._outbox = Outbox()
        self._channel: AioChannel | None = None
        self._pump: Pump | None = None
        # Calls of a thread have left their timeouts on the port.
        self._blocking = False
        self._closed = False
        self._closing = threading.Lock()
        self._follow()

    @property
    def bytes_per_second(self) -> float | None:
        return self._lines.settings.bytes_per_second

    @property
    def settings(self) -> LineSettings:
        return self._lines.settings

    def read(self, timeout: float) -> bytes:
        if self._outbox:
            self.drain(timeout)
        try:
            data = self._taken() or (self._pumped(timeout) if self._pump else self._read(timeout))
        except FAILURES as error:
            if isinstance(error, OSError) and ran_out(error):
                self._timed_out("sent nothing", timeout)
            self._gone(error)
        if self._closed:
            raise self._closed_here()
        if not data:
            self._timed_out("sent nothing", timeout)
        return data

    def write(self, data: bytes, timeout: float) -> None:
        self._outbox.put(data)
        self.drain(timeout)

    def drain(self, timeout: float) -> None:
        """Hand what was gathered to the system. `timeout` bounds the time without progress."""
        if self._pump is None and self._channel is not None and self._outbox:
            # Its loop may be about to send the same.
            self._channel.detach()
            self._channel = None
        try:
            if self._pump is not None:
                self._pump.flush_blocking(timeout)
            else:
                self._write(timeout)
        except (TimeoutError, serial.SerialTimeoutException):
            self._timed_out("took no byte", timeout)
        except FAILURES as error:
            self._gone(error)

    def close(self) -> None:
        try:
            if self._outbox and not self._closed:
                self.drain(CLOSE_SECONDS)
        finally:
            self._shut()

    async def aread(self, timeout: float) -> bytes:
        channel = self._attached()
        if self._outbox:
            # Whoever waits for an answer wants the question sent.
            channel.submit()
        elif self._received or channel.poll():
            return self._taken()
        try:
            await channel.receive(timeout)
        except OSError as error:
            if ran_out(error):
                self._timed_out("sent nothing", timeout)
            self._gone(error)
        return self._taken()

    async def awrite(self, data: bytes, timeout: float) -> None:
        channel = self._attached()
        mark = self._outbox.put(data)
        if len(self._outbox) < self._pacing.drain:
            channel.submit(within=0 if channel.awaited else self._pacing.drain_ms / 1000)
            return
        channel.submit()
        if not self._outbox:
            return
        try:
            await self.adrain(timeout)
        except asyncio.CancelledError:
            # Nobody waits for the rest, and nobody may be surprised by it later.
            self._outbox.withdraw(mark)
            raise

    async def adrain(self, timeout: float) -> None:
        """As `drain`."""
        try:
            await self._attached().flush(timeout)
        except OSError as error:
            if ran_out(error):
                self._timed_out("took no byte", timeout)
            self._gone(error)

    async def aclose(self) -> None:
        try:
            if self._outbox and not self._closed:
                await self.adrain(CLOSE_SECONDS)
        finally:
            # Closing waits in the driver: that is not for the loop to wait for.
            await unbroken(off_loop(self._shut))

    def configure(self, settings: LineSettings, timeout: float) -> None:
        self.drain(timeout)
        self._configure(settings)

    def assign(
        self, timeout: float, *, dtr: bool | None = None, rts: bool | None = None, sending_break: bool | None = None
    ) -> None:
        self.drain(timeout)
        self._lines.assign(dtr=dtr, rts=rts, sending_break=sending_break)

    def purge(self, timeout: float, *, received: bool = False, unsent: bool = False) -> None:
        if unsent:
            self._outbox.withdraw()
        if received and self._pump is not None:
            self._pump.purge()
        elif received:
            self._received.clear()
        self._lines.purge(received=received, unsent=unsent)

    def modem(self, timeout: float) -> ModemLines:
        return self._lines.modem()

    # A USB adapter that does not answer blocks its driver for seconds: that is not for the loop to wait for. Who is
    # cancelled meanwhile waits for it all the same: what was set later than what comes next would stay.

    async def aconfigure(self, settings: LineSettings, timeout: float) -> None:
        await self.adrain(timeout)
        await unbroken(off_loop(self._configure, settings))

    async def aassign(
        self, timeout: float, *, dtr: bool | None = None, rts: bool | None = None, sending_break: bool | None = None
    ) -> None:
        await self.adrain(timeout)
        await unbroken(off_loop(lambda: self._lines.assign(dtr=dtr, rts=rts, sending_break=sending_break)))

    async def apurge(self, timeout: float, *, received: bool = False, unsent: bool = False) -> None:
        # Calls that no driver waits in, on buffers that belong to the loop.
        self.purge(timeout, received=received, unsent=unsent)
        if unsent:
            self._attached().emptied()

    async def amodem(self, timeout: float) -> ModemLines:
        return await off_loop(self._lines.modem)

    def _configure(self, settings: LineSettings) -> None:
        self._lines.configure(settings)
        self._follow()

    def _follow(self) -> None:
        """Never hand over more at once than the line carries in a second: deadlines are for no progress."""
        speed = int(self._lines.settings.bytes_per_second)
        self._chunk = max(min(self._pacing.chunk, speed), LIMITS["chunk"][0])
        for channel in (self._channel, self._pump):
            if channel is not None:
                channel.chunk = self._chunk

    def _attached(self) -> AioChannel | Pump:
        """What moves bytes for the running loop. Raises what ended it."""
        if self._closed:
            raise self._closed_here()
        try:
            channel = self._pump or self._channel_here()
        except FAILURES as error:  # it begins with settings of its own, which a port that is gone refuses
            self._gone(error)
        if channel.error is not None:
            self._gone(channel.error)
        return channel

    def _channel_here(self) -> AioChannel | Pump:
        if self._pacing.writer == "thread":
            self._pump = Pump(self._port, self._received, self._outbox, self._chunk)
            return self._pump
        loop = asyncio.get_running_loop()
        if self._channel is None or self._channel.home is not loop:
            if self._channel is not None:
                self._channel.detach()
            self._channel = AioChannel(loop, self._port, self._received, self._outbox, self._chunk)
        if self._blocking:
            # Blocking calls in between gave the port timeouts.
            self._blocking = False
            self._port.timeout = 0
            self._port.write_timeout = 0
        return self._channel

    def _read(self, timeout: float) -> bytes:
        self._blocking = True
        # Setting it reconfigures the port, so only when it changed, and only where `receive` needs it.
        if not BY_DESCRIPTOR and self._port.timeout != timeout:
            self._port.timeout = timeout
        return receive(self._port, READ_BYTES, timeout)

    def _pumped(self, timeout: float) -> bytes:
        assert self._pump is not None
        self._pump.receive_blocking(timeout)
        return self._taken()

    def _write(self, timeout: float) -> None:
        self._blocking = True
        if self._port.write_timeout != timeout:
            self._port.write_timeout = timeout
        while chunk := self._outbox.lend(self._chunk):
            taken = 0
            try:
                taken = send(self._port, chunk, timeout)
            finally:
                self._outbox.settle(taken)
            if self._closed:
                raise self._closed_here()

    def _taken(self) -> bytes:
        # A reader thread may add to it at any time.
        data = bytes(self._received)
        del self._received[: len(data)]
        if self._pump is not None:
            self._pump.taken()
        return data

    def _shut(self) -> None:
        with self._closing:
            if self._closed:
                return
            self._closed = True
        if self._pump is not None:
            self._pump.stop()
        if self._channel is not None:
            self._channel.detach()
        self._port.cancel_read()
        self._port.cancel_write()
        with contextlib.suppress(*FAILURES):  # it is gone, or cannot tell
            self._discard_unsent()
        self._port.close()

    def _discard_unsent(self) -> None:
        """Wait until the driver has sent what it took, and throw away what it does not get rid of."""
        left, since = self._port.out_waiting, time.monotonic()
        while left and time.monotonic() - since < CLOSE_SECONDS:
            time.sleep(CLOSE_POLL_SECONDS)
            before, left = left, self._port.out_waiting
            if left < before:
                since = time.monotonic()
        if left:
            self._port.reset_output_buffer()

    def _timed_out(self, what: str, timeout: float) -> NoReturn:
        unsent = self._outbox.withdraw() if what.startswith("took") else 0
        # A call that was cut off does not tell how far it came.
        hint = f"Up to {unsent} bytes were not sent" if unsent else ""
        raise TransportTimeout(f"the device {what} for {timeout:g} s", where=self._where, hint=hint) from None

    def _gone(self, error: Exception) -> NoReturn:
        unsent = self._outbox.withdraw()
        if self._closed:
            raise self._closed_here() from error
        lost = f", up to {unsent} bytes were not sent" if unsent else ""
        raise TransportClosed(
            f"the serial port went away ({error}){lost}", where=self._where, hint="Plug it in again"
        ) from error

    def _closed_here(self) -> TransportClosed:
        return TransportClosed("the line was closed on this side", where=self._where)
