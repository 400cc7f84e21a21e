"""A serial port on an event loop: pyserial-asyncio's transport, changed where it loses bytes or time.

pyserial-asyncio 0.6 watches the port, on Windows by asking. This channel decides what happens when the port is ready:

- It takes bytes only while a coroutine waits in `receive`: a thread may use the port in between. The watch itself
  stays from one wait to the next, and ends when bytes come that nobody waits for: two calls of the system saved per
  answer. Where it is still on, `detach` takes it off, on the loop, before the port may be closed.
- It reads once, without asking first, and all that the system has. pyserial's `read` asks and takes 1 KiB at most.
- It writes at once what the system takes, and watches for room only when there is none. pyserial's `write` would
  spin in a full port.
- What ends the line ends the channel: it is told to who calls next, not logged, and never drains or closes the port,
  which belongs to `SerialPort`.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import serial
import serial_asyncio

from fastflight.transport.alarm import Alarm
from fastflight.transport.outbox import Outbox
from fastflight.transport.port import READ_BYTES
from fastflight.transport.serial_lines import BY_DESCRIPTOR, FAILURES
from fastflight.transport.watch import carry_out

# Terminals give 4 KiB a call, Windows' drivers what they have; no need to provide `READ_BYTES` of memory for it.
CALL_BYTES = min(16 * 1024, READ_BYTES)
# Chunks in one turn of the loop: the other tasks of the loop have their turn after this much of a fast line.
TURN_CHUNKS = 16
# As many reads, for the same reason.
TURN_POLLS = 16


class AioChannel(serial_asyncio.SerialTransport):  # type: ignore[misc]
    """Moves bytes between `port` and the owner's `received` and `outbox`, on `loop`. Used on that loop only."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        port: serial.Serial,
        received: bytearray,
        outbox: Outbox,
        chunk: int,
    ) -> None:
        super().__init__(loop, asyncio.Protocol(), port)
        self.home = loop
        self.chunk = chunk
        self.error: OSError | None = None
        self._received = received
        self._outbox = outbox
        # Its result says whether time is up. Never an exception: a cancelled task would leave that unseen.
        self._came: asyncio.Future[bool] | None = None
        # As `_came`, for each `flush`.
        self._flushing: set[asyncio.Future[bool]] = set()
        self._polls = 0
        self._limit = Alarm(loop, self._expire)
        self._gathering = Alarm(loop, self.submit)

    @property
    def awaited(self) -> bool:
        """Somebody waits for bytes now."""
        return self._came is not None

    def poll(self) -> bool:
        """Take what is there, without a turn of the loop, a few times in a row. True when that was something."""
        self._polls += 1
        if self._polls > TURN_POLLS or not BY_DESCRIPTOR:
            return False
        try:
            self._received += os.read(self._serial.fileno(), CALL_BYTES)
        except OSError:
            # Nothing there, or gone: `receive` tells.
            return False
        return bool(self._received)

    async def receive(self, timeout: float) -> None:
        """At least one byte more in `received`. `TimeoutError` or `OSError` when none comes."""
        self._polls = 0
        self._limit.set(timeout)
        expired = False
        came: asyncio.Future[bool] | None = None
        try:
            # Purged bytes wake as well, and are none.
            while not self._received:
                if self.error is not None:
                    raise self.error
                if expired:
                    raise TimeoutError
                came = self._came = self._loop.create_future()
                self._ensure_reader()
                expired = await came
        finally:
            # A reader that comes before a cancelled one is gone has set these for itself.
            if self._came is came:
                self._came = None
                self._limit.clear()

    async def flush(self, timeout: float) -> None:
        """All of the outbox taken by the system. `TimeoutError` after `timeout` seconds without progress."""
        self.submit()
        while self.error is None and self._outbox:
            before = self._outbox.taken
            waiter: asyncio.Future[bool] = self.home.create_future()
            timer = self.home.call_later(timeout, _settle, waiter, True)
            self._flushing.add(waiter)
            try:
                expired = await waiter
            finally:
                timer.cancel()
                self._flushing.discard(waiter)
            if expired and self._outbox.taken == before:
                raise TimeoutError
        if self.error is not None:
            raise self.error

    def submit(self, within: float = 0.0) -> None:
        """Begin to hand over the outbox, in `within` seconds at the latest. `flush` tells how it went."""
        if self._has_writer or self._closing or not self._outbox:
            return
        if not within:
            self._gathering.clear()
            self._write_ready()
        elif not self._gathering.is_set:
            self._gathering.set(within)

    def emptied(self) -> None:
        """Nothing is in the outbox any more: stop waiting for room."""
        if self._has_writer:
            self._remove_writer()
        for waiter in self._flushing:
            _settle(waiter, False)

    def detach(self) -> None:
        """Leave the loop, from whatever thread: when this returns, it does not touch the port any more."""
        carry_out(self._loop, self._leave)

    def _leave(self) -> None:
        self._end(OSError("the port changed hands"))

    def _expire(self) -> None:
        if self._came is not None:
            _settle(self._came, True)

    def _read_ready(self) -> None:
        """The port has bytes, or is gone."""
        if self._came is None or self._came.done():
            self._remove_reader()
            return
        try:
            data = os.read(self._serial.fileno(), CALL_BYTES) if BY_DESCRIPTOR else self._serial.read(CALL_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except FAILURES as error:
            self._abort(error)
            return
        if data:
            self._received += data
            self._came.set_result(False)
        elif BY_DESCRIPTOR:
            self._abort(OSError("it reports bytes and has none: unplugged"))

    def _write_ready(self) -> None:
        """The port has room, or may have."""
        outbox = self._outbox
        for _ in range(TURN_CHUNKS):
            chunk = outbox.lend(self.chunk)
            try:
                taken = os.write(self._serial.fileno(), chunk) if BY_DESCRIPTOR else self._serial.write(bytes(chunk))
            except (BlockingIOError, InterruptedError):
                taken = 0
            except FAILURES as error:
                outbox.settle(0)
                self._abort(error)
                return
            outbox.settle(taken)
            if not outbox:
                self.emptied()
                return
            if taken < len(chunk):
                break
        self._ensure_writer()

    def _abort(self, exc: Any) -> None:
        self._end(exc if isinstance(exc, OSError) else OSError(str(exc)))

    def _end(self, error: OSError) -> None:
        """Stop watching, and tell `error` to all who wait and all who come."""
        if self.error is not None:
            return
        self.error = error
        # A loop that is closed watches nothing, and cannot be told.
        if not self._loop.is_closed():
            self._remove_reader()
            self._limit.cancel()
            self._gathering.cancel()
            if self._came is not None:
                _settle(self._came, False)
            self.emptied()
        self._closing = True


def _settle(waiter: asyncio.Future[bool], expired: bool) -> None:
    if not waiter.done():
        waiter.set_result(expired)
