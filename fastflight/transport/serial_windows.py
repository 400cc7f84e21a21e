"""A serial port with two threads, for Windows, whose event loops cannot watch a serial port.

This module uses only pyserial's documented blocking calls: `read`, `write`, `in_waiting`, `cancel_read` and
`cancel_write`. It has never run on Windows. The tests run it on pseudo-terminals, with a pyserial port whose `write`
waits for room as a Windows driver does.

The reader thread blocks in `read` and collects the bytes; the writer thread sends the outbox. Callers wait for the
results in a thread or on any loop. Received bytes are kept if the call that waited for them is cancelled. The chunk
that the writer thread is sending cannot be withdrawn.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable

import serial

from fastflight.lazy import Logger
from fastflight.transport.pacing import Pacing
from fastflight.transport.port import READ_BYTES
from fastflight.transport.serial_lines import FAILURES
from fastflight.transport.serial_port import SerialPort

log = Logger(__name__)

# The reader thread pauses at this size until somebody reads. Further bytes wait in the system, then in the device.
MAX_RECEIVED_BYTES = READ_BYTES
# Windows ignores a cancellation that comes just before the call that it is meant for, so repeat it at this interval.
CANCEL_SECONDS = 0.02


class ThreadedSerialPort(SerialPort):
    """Moves the bytes of `port` in two threads, which run from the constructor until `close`.

    They are daemon threads, so that a program that forgets to close a port can exit.
    """

    def __init__(self, port: serial.Serial, where: str, pacing: Pacing) -> None:
        super().__init__(port, where, pacing)
        port.timeout = None
        port.write_timeout = None
        # Guards the attributes below, and is notified of each change of them.
        self._changed = threading.Condition()
        self._received = bytearray()
        # The size of the chunk that is being sent.
        self._sending = 0
        # When to send the outbox, on the monotonic clock.
        self._due = math.inf
        self._stopping = threading.Event()
        self._readers = 0
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._threads = [
            threading.Thread(target=self._run, args=(work,), name=f"serial {what} {port.name}", daemon=True)
            for what, work in (("reader", self._read_port), ("writer", self._write_outbox))
        ]
        for thread in self._threads:
            thread.start()

    def _receive(self, timeout: float) -> bytes:
        self._wait(lambda: bool(self._received), timeout)
        return self._take_received()

    async def _areceive(self, timeout: float) -> bytes:
        self._readers += 1
        try:
            await self._await(lambda: bool(self._received), timeout)
        finally:
            self._readers -= 1
        return self._take_received()

    def _send(self, timeout: float) -> None:
        self._begin_sending(0)
        while unsent := self._unsent:
            self._wait(self._progress(unsent), timeout)

    async def _asend(self, timeout: float) -> None:
        self._begin_sending(0)
        while unsent := self._unsent:
            await self._await(self._progress(unsent), timeout)

    def _begin_sending(self, within: float) -> None:
        with self._changed:
            self._due = min(self._due, time.monotonic() + within)
            self._changed.notify_all()

    @property
    def _is_read(self) -> bool:
        return self._readers > 0

    @property
    def _unsent(self) -> int:
        with self._changed:
            return len(self._outbox) + self._sending

    def _drop_unsent(self) -> None:
        with self._changed:
            self._outbox.withdraw()
            self._sending = 0
            self._notify()

    def _drop_received(self) -> None:
        """Drop the received bytes. The reader thread may still add bytes that it has just read."""
        with self._changed:
            self._received.clear()
            self._notify()

    def _stop(self) -> None:
        with self._changed:
            self._stopping.set()
            self._notify()
        for thread in self._threads:
            while thread.is_alive():
                self._port.cancel_read()
                self._port.cancel_write()
                thread.join(CANCEL_SECONDS)

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # the edge of the thread: the waiting callers raise the error
            if not isinstance(error, FAILURES):
                log.exception("a thread of a serial port failed", port=self._port.name)
            with self._changed:
                self._error = error if isinstance(error, OSError) else OSError(str(error))
                self._notify()

    def _read_port(self) -> None:
        """Read from the port: the work of the reader thread."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping.is_set() or len(self._received) < MAX_RECEIVED_BYTES)
                if self._stopping.is_set():
                    return
            data = self._port.read(1)
            if data:
                data += self._port.read(min(self._port.in_waiting, MAX_RECEIVED_BYTES - 1))
            with self._changed:
                self._received += data
                self._notify()

    def _write_outbox(self) -> None:
        """Send the outbox when it is due: the work of the writer thread."""
        while True:
            with self._changed:
                while not self._stopping.is_set() and (wait := self._due - time.monotonic()) > 0:
                    self._changed.wait(None if wait == math.inf else wait)
                if self._stopping.is_set():
                    return
                chunk = self._outbox.take(self._chunk)
                self._sending = len(chunk)
                if not chunk:
                    self._due = math.inf
            # A cancelled write returns early. Send the rest again, unless it was dropped meanwhile.
            while chunk:
                taken = self._port.write(chunk) or 0
                with self._changed:
                    if self._stopping.is_set():
                        return
                    chunk = chunk[taken:] if self._sending else b""
                    self._sending = len(chunk)
                    self._notify()

    def _take_received(self) -> bytes:
        with self._changed:
            data = bytes(self._received)
            self._received.clear()
            self._changed.notify_all()
            return data

    def _progress(self, unsent: int) -> Callable[[], bool]:
        return lambda: self._unsent != unsent

    def _notify(self) -> None:
        """Have every waiting caller check its condition again. The caller holds `_changed`."""
        self._changed.notify_all()
        for loop, woken in self._waiting:
            try:
                loop.call_soon_threadsafe(_wake, woken)
            except RuntimeError:
                pass  # The loop is closed, so nobody waits there.
        self._waiting.clear()

    def _wait(self, reached: Callable[[], bool], timeout: float) -> None:
        """Wait in a thread until `reached()` is true. Raise the error that has ended the port, or `TimeoutError`."""
        with self._changed:
            if not self._changed.wait_for(lambda: reached() or self._has_ended, timeout):
                raise TimeoutError
            if not reached():
                raise self._end_error()

    async def _await(self, reached: Callable[[], bool], timeout: float) -> None:
        """As `_wait`, on a loop."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(timeout):
            while True:
                with self._changed:
                    if reached():
                        return
                    if self._has_ended:
                        raise self._end_error()
                    waiting = (loop, loop.create_future())
                    self._waiting.append(waiting)
                try:
                    await waiting[1]
                finally:
                    with self._changed:
                        if waiting in self._waiting:
                            self._waiting.remove(waiting)

    @property
    def _has_ended(self) -> bool:
        return self._stopping.is_set() or self._error is not None

    def _end_error(self) -> OSError:
        return self._error or OSError("the port was closed")


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
