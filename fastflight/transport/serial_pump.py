"""A serial port behind two threads, for systems whose event loops cannot watch one: Windows.

A reader thread blocks in pyserial's `read` and adds to the owner's `received`, a writer thread hands the owner's
outbox to the system. They own the port from `Pump(...)` until `stop()`; in between, threads and coroutines of
any loop wait here for what the two have done. Nothing wakes by time but writes that were gathered. What was received
stays received, whoever stopped waiting for it; the chunk that the writer thread is at is beyond recall.

`daemon`, so that a program which forgot to close a port can end; `stop` joins both.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import serial
import structlog

from fastflight.transport.outbox import Outbox
from fastflight.transport.port import READ_BYTES
from fastflight.transport.serial_lines import BY_DESCRIPTOR, FAILURES, readable, receive, send

log = structlog.get_logger(__name__)

# The reader thread stops here until somebody takes bytes: the rest waits in the system, and then in the device.
MAX_RECEIVED_BYTES = READ_BYTES
# How often a call that must end is told so. On Windows it misses what it is told just before it begins.
CANCEL_SECONDS = 0.02


class _Waiter(NamedTuple):
    loop: asyncio.AbstractEventLoop
    woken: asyncio.Future[None]


class Pump:
    """Moves bytes between `port` and the owner's `received` and `outbox`."""

    def __init__(self, port: serial.Serial, received: bytearray, outbox: Outbox, chunk: int) -> None:
        self.chunk = chunk
        self._port = port
        self._received = received
        self._outbox = outbox
        self.error: OSError | None = None
        self._stopping = threading.Event()
        # When the outbox is to be sent, on the monotonic clock.
        self._due = math.inf
        self._receivers = 0
        self._changed = threading.Condition()
        self._waiters: list[_Waiter] = []
        # Held from when bytes are taken out of the system until they are in `received`, so that a purge does not take
        # some from under it and leave others in its hand.
        self._taking = threading.Lock()
        port.timeout = None
        port.write_timeout = None
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name=f"serial {what} {port.name}", daemon=True)
            for what, work in (("reader", self._read), ("writer", self._write))
        ]
        for thread in self._threads:
            thread.start()

    @property
    def awaited(self) -> bool:
        """Somebody waits for bytes now."""
        return self._receivers > 0

    def poll(self) -> bool:
        """Bytes are there. The reader thread has taken them already."""
        return bool(self._received)

    async def receive(self, timeout: float) -> None:
        """At least one byte more in `received`. `TimeoutError` or `OSError` when none comes."""
        self._receivers += 1
        try:
            await self._until(lambda: bool(self._received), timeout)
        finally:
            self._receivers -= 1

    def receive_blocking(self, timeout: float) -> None:
        """As `receive`, for a thread."""
        self._until_blocking(lambda: bool(self._received), timeout)

    async def flush(self, timeout: float) -> None:
        """All of the outbox taken by the system. `TimeoutError` after `timeout` seconds without progress."""
        self.submit()
        while self._outbox:
            await self._until(partial(self._moved, self._outbox.taken), timeout)
        self._check()

    def flush_blocking(self, timeout: float) -> None:
        """As `flush`, for a thread."""
        self.submit()
        while self._outbox:
            self._until_blocking(partial(self._moved, self._outbox.taken), timeout)
        self._check()

    def submit(self, within: float = 0.0) -> None:
        """Begin to hand over the outbox, in `within` seconds at the latest. `flush` tells how it went."""
        due = time.monotonic() + within
        with self._changed:
            if due < self._due:
                self._due = due
                self._changed.notify_all()

    def taken(self) -> None:
        """Bytes were taken out of `received`: there is room again."""
        with self._changed:
            self._changed.notify_all()

    def emptied(self) -> None:
        """The owner dropped what was in the outbox: nobody has to wait for it."""
        with self._changed:
            self._ring()

    def purge(self) -> None:
        """Throw away what was received and what the system holds of it; a byte that comes now may survive.

        On Windows, where nothing waits for bytes but a read, it may have come just before.
        """
        with self._taking:
            self._port.reset_input_buffer()
            self._received.clear()
        self.taken()

    def stop(self) -> None:
        """End both threads, whatever they wait for, and wake all who wait here. The port stays open."""
        with self._changed:
            self._stopping.set()
            self._ring()
        for thread in self._threads:
            while thread.is_alive():
                self._port.cancel_read()
                self._port.cancel_write()
                thread.join(CANCEL_SECONDS)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # the thread's edge: whoever waits is told
            if not isinstance(error, FAILURES):
                log.exception("a thread of a serial port failed", port=self._port.name)
            with self._changed:
                self.error = error if isinstance(error, OSError) else OSError(str(error))
                self._ring()

    def _read(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping.is_set() or len(self._received) < MAX_RECEIVED_BYTES)
                if self._stopping.is_set():
                    return
            first = b""
            if BY_DESCRIPTOR:
                there = readable(self._port, None)
            else:
                first = self._port.read(1)
                there = bool(first)
            if not there:  # cancelled
                continue
            with self._taking:
                if BY_DESCRIPTOR:
                    data = receive(self._port, MAX_RECEIVED_BYTES, 0)
                else:  # what has come besides: `receive` would wait for one byte more
                    data = first + self._port.read(min(self._port.in_waiting, MAX_RECEIVED_BYTES - 1))
                with self._changed:
                    self._received += data
                    self._ring()

    def _write(self) -> None:
        while True:
            with self._changed:
                while not self._stopping.is_set() and (wait := self._due - time.monotonic()) > 0:
                    self._changed.wait(None if wait == math.inf else wait)
                if self._stopping.is_set():
                    return
            chunk = self._outbox.lend(self.chunk)
            taken = send(self._port, chunk, None) if chunk else 0
            with self._changed:
                if self._stopping.is_set():
                    return
                self._outbox.settle(taken)
                if not self._outbox:
                    self._due = math.inf
                self._ring()

    def _ring(self) -> None:
        """Let everyone who waits look again. `_changed` is held."""
        self._changed.notify_all()
        for waiter in self._waiters:
            try:
                waiter.loop.call_soon_threadsafe(_wake, waiter.woken)
            except RuntimeError:
                pass  # Its loop was closed: it does not wait any more.
        self._waiters.clear()

    async def _until(self, reached: Callable[[], bool], timeout: float) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(timeout):
            while True:
                with self._changed:
                    if reached():
                        return
                    self._check()
                    waiter = _Waiter(loop, loop.create_future())
                    self._waiters.append(waiter)
                try:
                    await waiter.woken
                finally:
                    with self._changed:
                        if waiter in self._waiters:
                            self._waiters.remove(waiter)

    def _until_blocking(self, reached: Callable[[], bool], timeout: float) -> None:
        with self._changed:
            if not self._changed.wait_for(
                lambda: reached() or self._stopping.is_set() or self.error is not None, timeout
            ):
                raise TimeoutError
            if not reached():
                self._check()

    def _moved(self, before: int) -> bool:
        return self._outbox.taken != before or not self._outbox

    def _check(self) -> None:
        if self.error is not None:
            raise self.error
        if self._stopping.is_set():
            raise OSError("the port was closed")


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
