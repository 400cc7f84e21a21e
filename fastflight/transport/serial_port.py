"""The base class of open serial ports, for all systems.

Writes of coroutines are gathered (`Pacing`). They are sent when there are enough bytes, when the time is up, and at
once when somebody reads, drains or closes. If sending fails in the background, the next call raises the error, reports
how many bytes were not sent, and drops them. A cancelled write withdraws those of its own bytes that the system does
not have yet, but no bytes of earlier calls.

A thread may use the port while no coroutine does. It first sends the gathered bytes; its own writes are not gathered.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from abc import ABC, abstractmethod

import serial

from fastflight.concurrency import off_loop
from fastflight.concurrency.offload import unbroken
from fastflight.errors import TransportClosed, TransportError, TransportTimeout
from fastflight.transport.pacing import LIMITS, Outbox, Pacing
from fastflight.transport.port import LineSettings, ModemLines
from fastflight.transport.serial_lines import FAILURES, Lines
from fastflight.transport.watch import is_timeout

# Closing a port drops the unsent bytes when sending makes no progress for this long. Otherwise the driver itself would
# wait in `close`, on Linux for 30 s while flow control stops the line.
CLOSE_SECONDS = 1.0
CLOSE_POLL_SECONDS = 0.01
# What the line did not do, for the texts of timeout errors.
SENT_NOTHING, TOOK_NOTHING = "sent nothing", "took no byte"


class SerialPort(ABC):
    """An open serial port: a `Port`, a `SerialControl` and `Gathering`. A subclass moves the bytes.

    The abstract methods raise `OSError`, and `TimeoutError` when the time is up; this class translates both.
    """

    def __init__(self, port: serial.Serial, where: str, pacing: Pacing) -> None:
        self._port = port
        self._where = where
        self._pacing = pacing
        self._lines = Lines(port, where)
        self._outbox = Outbox()
        # The error that ended the port. Every later call raises it.
        self._error: OSError | None = None
        self._closed = False
        self._closing = threading.Lock()
        self._limit_chunk()

    @abstractmethod
    def _receive(self, timeout: float) -> bytes:
        """Return at least one byte."""

    @abstractmethod
    async def _areceive(self, timeout: float) -> bytes:
        """As `_receive`."""

    @abstractmethod
    def _send(self, timeout: float) -> None:
        """Hand the whole outbox to the system. `timeout` bounds the time without progress."""

    @abstractmethod
    async def _asend(self, timeout: float) -> None:
        """As `_send`."""

    @abstractmethod
    def _begin_sending(self, within: float) -> None:
        """Start sending the outbox within `within` seconds, and return at once. Called on a loop."""

    @property
    @abstractmethod
    def _is_read(self) -> bool:
        """Whether a coroutine is waiting for bytes."""

    @property
    @abstractmethod
    def _unsent(self) -> int:
        """An upper bound of the bytes that the system does not have yet."""

    @abstractmethod
    def _drop_unsent(self) -> None:
        """Empty the outbox, and wake the calls that wait for it to be sent."""

    @abstractmethod
    def _drop_received(self) -> None:
        """Drop the bytes that were taken from the system and not read yet."""

    @abstractmethod
    def _stop(self) -> None:
        """Wake every waiting call, and stop using the port. May be called from any thread."""

    @property
    def bytes_per_second(self) -> float | None:
        return self.settings.bytes_per_second

    @property
    def settings(self) -> LineSettings:
        return self._lines.settings

    def read(self, timeout: float) -> bytes:
        if self._unsent:
            self.drain(timeout)
        try:
            return self._receive(timeout)
        except FAILURES as error:
            raise self._translate(error, SENT_NOTHING, timeout) from error

    def write(self, data: bytes, timeout: float) -> None:
        self._outbox.put(data)
        self.drain(timeout)

    def drain(self, timeout: float) -> None:
        """Hand the gathered bytes to the system. `timeout` bounds the time without progress, in seconds."""
        try:
            self._send(timeout)
        except FAILURES as error:
            raise self._translate(error, TOOK_NOTHING, timeout) from error

    def close(self) -> None:
        try:
            if self._unsent and not self._closed:
                self.drain(CLOSE_SECONDS)
        finally:
            self._close_port()

    async def aread(self, timeout: float) -> bytes:
        self._check()
        if self._unsent:
            # A task that waits for an answer needs its question sent.
            self._begin_sending(0)
        try:
            return await self._areceive(timeout)
        except FAILURES as error:
            raise self._translate(error, SENT_NOTHING, timeout) from error

    async def awrite(self, data: bytes, timeout: float) -> None:
        self._check()
        position = self._outbox.put(data)
        if len(self._outbox) < self._pacing.drain:
            self._begin_sending(0 if self._is_read else self._pacing.drain_ms / 1000)
            return
        try:
            await self.adrain(timeout)
        except asyncio.CancelledError:
            # The rest must not be sent later, when nobody expects it.
            self._outbox.withdraw(position)
            raise

    async def adrain(self, timeout: float) -> None:
        """As `drain`."""
        self._check()
        try:
            await self._asend(timeout)
        except FAILURES as error:
            raise self._translate(error, TOOK_NOTHING, timeout) from error

    async def aclose(self) -> None:
        try:
            if self._unsent and not self._closed:
                await self.adrain(CLOSE_SECONDS)
        finally:
            # The driver may block while it closes; the loop must not.
            await unbroken(off_loop(self._close_port))

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
            self._drop_unsent()
        self._lines.purge(received=received, unsent=unsent)
        if received:
            self._drop_received()

    def modem(self, timeout: float) -> ModemLines:
        return self._lines.modem()

    # The driver of a USB adapter that does not answer blocks for seconds, so these calls run in a thread. A cancelled
    # call still waits for the driver: its setting must not take effect after that of the next caller.

    async def aconfigure(self, settings: LineSettings, timeout: float) -> None:
        await self.adrain(timeout)
        await unbroken(off_loop(self._configure, settings))

    async def aassign(
        self, timeout: float, *, dtr: bool | None = None, rts: bool | None = None, sending_break: bool | None = None
    ) -> None:
        await self.adrain(timeout)
        await unbroken(off_loop(lambda: self._lines.assign(dtr=dtr, rts=rts, sending_break=sending_break)))

    async def apurge(self, timeout: float, *, received: bool = False, unsent: bool = False) -> None:
        # No driver blocks in these calls, and the buffers may be used on the loop only.
        self.purge(timeout, received=received, unsent=unsent)

    async def amodem(self, timeout: float) -> ModemLines:
        return await off_loop(self._lines.modem)

    def _configure(self, settings: LineSettings) -> None:
        self._lines.configure(settings)
        self._limit_chunk()

    def _limit_chunk(self) -> None:
        """Limit a chunk to what the line carries in a second: a chunk is the smallest progress that can be seen."""
        self._chunk = max(min(self._pacing.chunk, int(self.settings.bytes_per_second)), LIMITS["chunk"][0])

    def _close_port(self) -> None:
        with self._closing:
            if self._closed:
                return
            self._closed = True
        self._stop()
        with contextlib.suppress(*FAILURES):  # the port is gone, or does not support this
            self._discard_unsent()
        self._port.close()

    def _discard_unsent(self) -> None:
        """Wait until the driver has sent its bytes. Discard the rest if it makes no progress for `CLOSE_SECONDS`."""
        left, since = self._port.out_waiting, time.monotonic()
        while left and time.monotonic() - since < CLOSE_SECONDS:
            time.sleep(CLOSE_POLL_SECONDS)
            before, left = left, self._port.out_waiting
            if left < before:
                since = time.monotonic()
        if left:
            self._port.reset_output_buffer()

    def _check(self) -> None:
        if self._closed:
            raise self._closed_error()
        if self._error is not None:
            raise self._translate(self._error, "", 0)

    def _translate(self, error: Exception, what: str, timeout: float) -> TransportError:
        """Return the error to raise, and drop the bytes that it reports as not sent."""
        if isinstance(error, OSError) and is_timeout(error):
            unsent = self._drop_and_count_unsent() if what == TOOK_NOTHING else 0
            hint = f"Up to {unsent} bytes were not sent" if unsent else ""
            return TransportTimeout(f"the device {what} for {timeout:g} s", where=self._where, hint=hint)
        unsent = self._drop_and_count_unsent()
        if self._closed:
            return self._closed_error()
        lost = f", up to {unsent} bytes were not sent" if unsent else ""
        return TransportClosed(f"the serial port went away ({error}){lost}", where=self._where, hint="Plug it in again")

    def _drop_and_count_unsent(self) -> int:
        unsent = self._unsent
        self._drop_unsent()
        return unsent

    def _closed_error(self) -> TransportClosed:
        return TransportClosed("the line was closed on this side", where=self._where)
