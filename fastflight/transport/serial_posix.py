"""A serial port on POSIX systems. pyserial opens and configures it; `Watch` waits for its descriptor."""

from __future__ import annotations

import contextlib
import errno
import os
import select

import serial

from fastflight.transport.pacing import Pacing
from fastflight.transport.port import READ_BYTES
from fastflight.transport.serial_port import SerialPort
from fastflight.transport.watch import Watch

# A terminal returns at most 4 KiB a call, so there is no need to allocate `READ_BYTES`.
CALL_BYTES = min(16 * 1024, READ_BYTES)
# Chunks to write in one turn of the loop, so that its other tasks get a turn while a fast line is written.
TURN_CHUNKS = 16


class PosixSerialPort(SerialPort):
    """Reads and writes the descriptor of `port` directly: pyserial's `write` would spin while the port is full."""

    def __init__(self, port: serial.Serial, where: str, pacing: Pacing) -> None:
        super().__init__(port, where, pacing)
        self._descriptor = port.fileno()
        os.set_blocking(self._descriptor, False)
        self._watch = Watch(self._descriptor, self._take, for_threads=True)

    def _receive(self, timeout: float) -> bytes:
        return self._watch.read_blocking(timeout)

    async def _areceive(self, timeout: float) -> bytes:
        return await self._watch.read(timeout)

    def _send(self, timeout: float) -> None:
        # Stop the loop that gathered the bytes from sending them as well.
        self._watch.end()
        self._write()
        while self._outbox:
            self._watch.wait_blocking(select.POLLOUT, timeout)
            self._write()

    async def _asend(self, timeout: float) -> None:
        self._send_now()
        while self._outbox and self._error is None:
            await self._watch.room(timeout)
            self._send_now()
        if self._error is not None:
            raise self._error

    def _begin_sending(self, within: float) -> None:
        if within:
            self._watch.call_later(within, self._send_now)
        else:
            self._send_now()

    @property
    def _is_read(self) -> bool:
        return self._watch.is_read

    @property
    def _unsent(self) -> int:
        return len(self._outbox)

    def _drop_unsent(self) -> None:
        self._outbox.withdraw()
        self._watch.end()

    def _drop_received(self) -> None:
        with contextlib.suppress(OSError):
            self._watch.unread()

    def _stop(self) -> None:
        self._watch.close()

    def _send_now(self) -> None:
        """Write as much as the system takes now, and have the loop write the rest as soon as there is room."""
        try:
            self._write()
        except OSError as error:
            self._error = error
            # Wake the reading task, which then finds the error.
            self._watch.end()
        else:
            if self._outbox:
                self._watch.call_with_room(self._send_now)

    def _write(self) -> None:
        """Write as much as the system takes now, at most `TURN_CHUNKS` chunks."""
        for _ in range(TURN_CHUNKS):
            chunk = self._outbox.first(self._chunk)
            if not chunk:
                return
            try:
                taken = os.write(self._checked_descriptor(), chunk)
            except (BlockingIOError, InterruptedError):
                return
            self._outbox.drop(taken)
            if taken < len(chunk):
                return

    def _take(self) -> bytes:
        data = os.read(self._checked_descriptor(), CALL_BYTES)
        if not data:
            raise OSError("it reports bytes and has none: unplugged")
        return data

    def _checked_descriptor(self) -> int:
        """Return the descriptor. Raise if the port has failed, or is closed: another file may have its number then."""
        if self._error is not None:
            raise self._error
        if self._closed:
            raise OSError(errno.EBADF, "closed")
        return self._descriptor
