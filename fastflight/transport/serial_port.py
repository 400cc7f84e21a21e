"""An open serial port. pyserial opens and controls it; an asyncio transport moves its bytes.

Writes of coroutines are gathered (`Pacing`). They are sent when there are enough bytes, when the time is up, and at
once when somebody reads, drains or closes. If sending fails in the background, the next call raises the error, reports
how many bytes were not sent, and drops them. A cancelled write withdraws those of its own bytes that the transport does
not have yet, but no bytes of earlier calls.

On Windows, whose event loops cannot watch a serial port, the transport is that of pyserial-asyncio, which polls the
port every 0.5 ms. It has never run there with this program.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time

import serial
import serial_asyncio

from fastflight.concurrency import off_loop
from fastflight.concurrency.offload import unbroken
from fastflight.errors import TransportClosed, TransportError, TransportTimeout
from fastflight.transport.descriptor import DescriptorTransport
from fastflight.transport.loop_port import Port
from fastflight.transport.pacing import LIMITS, Outbox, Pacing
from fastflight.transport.port import LineSettings, ModemLines
from fastflight.transport.serial_lines import FAILURES, Lines

# Closing a port drops the unsent bytes when sending makes no progress for this long. Otherwise the driver itself would
# wait in `close`, on Linux for 30 s while flow control stops the line.
CLOSE_SECONDS = 1.0
CLOSE_POLL_SECONDS = 0.01
# Chunks to pass on in one turn of the loop, so that its other tasks get a turn while a fast line is written.
TURN_CHUNKS = 16


class SerialPort(Port):
    """An open serial port: a `Port` and a `SerialControl`."""

    def __init__(self, port: serial.Serial, where: str, pacing: Pacing) -> None:
        super().__init__(where, self._close_port)
        self._port = port
        self._pacing = pacing
        self._lines = Lines(port, where)
        self._outbox = Outbox()
        # How many coroutines wait for bytes.
        self._readers = 0
        # Sends the gathered bytes when the time is up.
        self._timer: asyncio.TimerHandle | None = None
        self._limit_chunk()
        if os.name == "posix":
            DescriptorTransport(port.fileno(), self)
        else:
            serial_asyncio.SerialTransport(self._loop, self, port)

    @property
    def bytes_per_second(self) -> float | None:
        return self.settings.bytes_per_second

    @property
    def settings(self) -> LineSettings:
        return self._lines.settings

    # A driver of a USB adapter that does not answer blocks for seconds, so these calls run in a thread. A cancelled
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
        self._check_guard()
        # No driver blocks in these calls, and the buffers may be used on the loop only.
        await self.portal.acall(self._purge(received, unsent))

    async def amodem(self, timeout: float) -> ModemLines:
        return await off_loop(self._lines.modem)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._pass_on()

    # On the loop.

    async def _await_bytes(self, timeout: float) -> None:
        # A task that waits for an answer needs its question sent.
        self._pass_on()
        self._readers += 1
        try:
            await super()._await_bytes(timeout)
        finally:
            self._readers -= 1

    async def _awrite(self, data: bytes, timeout: float) -> None:
        self._check()
        position = self._outbox.put(data)
        if self._readers:
            self._pass_on()
        if len(self._outbox) < self._pacing.drain:
            if self._timer is None and len(self._outbox):
                self._timer = self._loop.call_later(self._pacing.drain_ms / 1000, self._pass_on)
            return
        try:
            await self._drain(timeout)
        except asyncio.CancelledError:
            # The rest must not be sent later, when nobody expects it.
            self._outbox.withdraw(position)
            raise

    def _pass_on(self) -> None:
        """Pass the outbox to the transport, chunk by chunk, while the system takes all of each."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for _ in range(TURN_CHUNKS):
            if self._writing_paused or self._failure is not None or not (chunk := self._outbox.take(self._chunk)):
                return
            self._transport.write(chunk)
        self._loop.call_soon(self._pass_on_more)

    def _pass_on_more(self) -> None:
        self._pass_on()
        self._wake()  # `_drain` waits for this: if the system takes all, the transport says nothing

    async def _drain(self, timeout: float) -> None:
        """Wait until the system has all bytes. `timeout` bounds the time without progress."""
        self._check()
        self._pass_on()
        while unsent := self._unsent:
            try:
                await self._wait(lambda: self._is_closed_or(self._unsent != unsent), "took no byte", timeout)
            except TransportTimeout as error:
                raise TransportTimeout(
                    error.what, where=self._where, hint=f"Up to {self._drop_unsent()} bytes were not sent"
                ) from None
            self._check()

    def _is_closed_or(self, progress: bool) -> bool:
        return progress or self._failure is not None

    def _is_writable(self) -> bool:
        return super()._is_writable() and not len(self._outbox)

    @property
    def _unsent(self) -> int:
        """An upper bound of the bytes that the system does not have yet."""
        return len(self._outbox) + self._transport.get_write_buffer_size()

    def _drop_unsent(self) -> int:
        """Drop the unsent bytes, and return how many they were."""
        unsent = self._unsent
        self._outbox.withdraw()
        transport = self._transport
        if isinstance(transport, DescriptorTransport | serial_asyncio.SerialTransport):
            transport.flush()
        return unsent

    async def _purge(self, received: bool, unsent: bool) -> None:
        self._check()
        if unsent:
            self._drop_unsent()
            self._wake()
        self._lines.purge(received=received, unsent=unsent)
        if received:
            with self._lock:
                self._received.clear()

    def _configure(self, settings: LineSettings) -> None:
        self._lines.configure(settings)
        self._limit_chunk()

    def _limit_chunk(self) -> None:
        """Limit a chunk to what the line carries in a second: a chunk is the smallest progress that can be seen."""
        self._chunk = max(min(self._pacing.chunk, int(self.settings.bytes_per_second)), LIMITS["chunk"][0])

    # Closing.

    def _begin_closing(self) -> None:
        # What was gathered goes too, such as the byte that brings the board back to its prompt.
        self._pass_on()
        super()._begin_closing()

    async def _aclose(self) -> None:
        try:
            if self._failure is None and self._unsent:
                await self._drain(CLOSE_SECONDS)
        finally:
            await super()._aclose()

    def _close_port(self) -> None:
        """Close the port, in a thread, since the driver may block."""
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

    def _lost_error(self, error: Exception | None) -> TransportError:
        if self._closed:
            return self._closed_error()
        unsent = self._unsent
        self._outbox.withdraw()
        lost = f", up to {unsent} bytes were not sent" if unsent else ""
        reason = error or "it reports bytes and has none: unplugged"
        return TransportClosed(
            f"the serial port went away ({reason}){lost}", where=self._where, hint="Plug it in again"
        )
