"""The ports: byte streams to devices, each the protocol of an asyncio transport on one event loop.

The transport calls `data_received` for all bytes that arrive. They wait here for the next read, at most `READ_BYTES`
and one chunk more: then the transport pauses, and the bytes wait in the system. Writes are passed to the transport
chunk by chunk, each when the system has taken the last one: a write that is cut off leaves at most one chunk unsent.

The coroutines may be called on any loop: each call crosses to the port's loop through its `Portal`, as do the calls of
threads.

A task on the loop keeps the port: it releases what belongs to it when the connection is lost, when the port is closed,
and when the loop ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import cast

from fastflight.concurrency import off_loop
from fastflight.concurrency.offload import unbroken
from fastflight.concurrency.portal import Portal
from fastflight.errors import TransportClosed, TransportError, TransportTimeout
from fastflight.transport.port import READ_BYTES
from fastflight.transport.port_tap import PortTap

# The most that is passed to the transport at once: on any usable line, a working peer accepts this much within the
# timeout of a write.
WRITE_BYTES = 64 * 1024
# A write returns when the system has not taken this much yet: a dialogue waits for the answer, and not before that for
# another turn of the loop. The next write, and `adrain`, wait for it.
UNSENT_BYTES = 4096
# A closed port sends its last bytes for this long.
CLOSE_SECONDS = 1.0


class Port(asyncio.Protocol):
    """An open byte stream. Make it on its loop, as the protocol of its transport.

    The coroutines may be called on any loop, and threads call them through the `portal`. Bytes that arrive while nobody
    reads go to the next read. Every wait has a deadline. All failures are `TransportClosed`, `TransportTimeout` or
    `TransportError`. A port of a real serial line, local or behind RFC 2217, is also a `SerialControl`.

    `release` is called in a thread after the connection was closed; it may block. `bytes_per_second` is the speed of
    the line, None if not known.
    """

    def __init__(
        self, where: str, release: Callable[[], object] | None = None, *, bytes_per_second: float | None = None
    ) -> None:
        self._where = where
        self._loop = asyncio.get_running_loop()
        self.portal = Portal(self._loop, lambda: self._failure or self._closed_error())
        # Sees all bytes that cross the port.
        self.tapping: PortTap | None = None
        self._release = release
        self._bytes_per_second = bytes_per_second
        self._chunk = WRITE_BYTES
        self._transport: asyncio.Transport
        # Guards the received bytes, which a coroutine of another loop may take.
        self._lock = threading.Lock()
        self._received: deque[bytes] = deque()
        # How many bytes have arrived since the last read.
        self._unread_bytes = 0
        self._reading_paused = False
        self._writing_paused = False
        self._closed = False
        # Why the port can neither read nor write any more.
        self._failure: TransportError | None = None
        # The tasks on the loop that wait for a change. The result of such a future is whether the time is up.
        self._waiters: set[asyncio.Future[bool]] = set()
        # Whether the tap gets bytes as they arrive (`alisten`), and an error of that.
        self._is_listening = False
        self._listening_error: Exception | None = None
        # Set when `alisten` is to stop. It is no waiter: bytes that arrive must not wake its task.
        self._stop_listening = asyncio.Event()
        self._lost = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    # The protocol.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # The transport then reports, by `pause_writing`, that the system has not taken all bytes. With 0, asyncio's TLS
        # would always be full.
        self._transport.set_write_buffer_limits(high=1)
        self._keeper = self._loop.create_task(self._keep())

    def data_received(self, data: bytes) -> None:
        if self._is_listening:
            self._pass_to_tap(self._decode(data))
        else:
            with self._lock:
                self._unread_bytes += len(data)
                self._store(data)
                if self._unread_bytes >= READ_BYTES and not self._reading_paused and self._may_pause:
                    self._reading_paused = True
                    self._transport.pause_reading()
        if self._waiters:
            self._wake()

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(self._lost_error(exc))
        self._lost.set()

    @property
    def bytes_per_second(self) -> float | None:
        """The capacity in each direction; None if unknown, as for a socket or a pseudo-terminal."""
        return self._bytes_per_second

    def close(self) -> None:
        """Close the port, from any thread. On its own loop, this only begins to close it."""
        if self.portal.is_here:
            self._begin_closing()
            return
        with contextlib.suppress(TransportClosed):  # the loop has ended, and the port with it
            self.portal.call(self.aclose())

    # For coroutines.

    async def aread(self, timeout: float) -> bytes:
        """Return at least one byte. `TransportTimeout` if none arrives for `timeout` seconds."""
        if self.tapping is not None:
            await self.tapping.apace()
        while True:
            # Taken here and not on the loop: if this task is cancelled, no bytes are on their way to it.
            with self._lock:
                if self._is_readable():
                    data = self._take()
                    break
            await self.portal.acall(self._await_bytes(timeout))
        if self.tapping is not None:
            self.tapping.received(data)
        return data

    async def alisten(self) -> None:
        """Read for the tap alone, until cancelled. Raise what `aread` raises, except for a timeout.

        This needs no wake-up of a task for each read.
        """
        assert self.tapping is not None
        while True:
            await self.tapping.apace()
            await self.portal.acall(self._listen())

    async def awrite(self, data: bytes, timeout: float) -> None:
        """Hand all of `data` to the line, at once or soon. `timeout` bounds the time without progress, in seconds."""
        if self.tapping is not None:
            self.tapping.sending(data)
        await self.portal.acall(self._awrite(data, timeout))

    async def adrain(self, timeout: float) -> None:
        """Wait until the system has all bytes that were written. `timeout` bounds the time without progress."""
        self._check_guard()
        await self.portal.acall(self._drain(timeout))

    def _check_guard(self) -> None:
        """Raise the error of the guard if this process may not use the line now."""
        if self.tapping is not None:
            self.tapping.guard()

    async def aclose(self) -> None:
        """Close the line. Safe to call twice, and while another task waits in `aread`."""
        with contextlib.suppress(TransportClosed):
            await self.portal.acall(unbroken(self._aclose()))

    # On the loop.

    async def _await_bytes(self, timeout: float) -> None:
        try:
            await self._wait(self._is_readable, "sent nothing", timeout)
        except TransportTimeout:
            await self._catch_up()
            if not self._is_readable():
                raise

    async def _catch_up(self) -> None:
        """Receive the bytes that had arrived in the system before: on a busy machine, the loop may be behind."""
        for _ in range(2):
            await asyncio.sleep(0)

    async def _awrite(self, data: bytes, timeout: float) -> None:
        if len(data) <= UNSENT_BYTES and self._is_writable():
            self._check()
            self._transport.write(self._encode(data))
        else:
            await self._write_all(data, timeout)

    async def _write_all(self, data: bytes, timeout: float) -> None:
        for start in range(0, len(data), self._chunk):
            await self._wait_until_writable(timeout)
            self._transport.write(self._encode(data[start : start + self._chunk]))
        await self._drain(timeout)

    async def _drain(self, timeout: float) -> None:
        await self._wait(self._is_sent, "took no byte", timeout)
        self._check()

    async def _listen(self) -> None:
        """Pass bytes to the tap as they arrive, until the line is ahead of its recorder."""
        assert self.tapping is not None
        self._is_listening, self._listening_error = True, None
        self._stop_listening.clear()
        try:
            if self._has_unread:
                with self._lock:
                    data = self._take()
                self._pass_to_tap(data)
            if self._failure is None:
                await self._stop_listening.wait()
        finally:
            self._is_listening = False
            self.tapping.settle()
        if self._listening_error is not None:
            raise self._listening_error
        self._check()

    def _pass_to_tap(self, data: bytes) -> None:
        assert self.tapping is not None
        try:
            if not data or not self.tapping.overheard(data):
                return
        except Exception as error:  # the edge of the transport: `alisten` raises it
            self._listening_error = error
        self._is_listening = False
        self._stop_listening.set()

    async def _wait_until_writable(self, timeout: float) -> None:
        await self._wait(self._is_writable, "took no byte", timeout)
        self._check()

    def _encode(self, data: bytes) -> bytes:
        """Return the form in which `data` is sent."""
        return data

    async def _wait(self, reached: Callable[[], bool], what: str, timeout: float | None) -> None:
        """Wait until `reached()` is true. `TransportTimeout` after `timeout` seconds: the device {what}."""
        deadline = None if timeout is None else self._loop.time() + timeout
        while not reached():
            waiter = self._loop.create_future()
            self._waiters.add(waiter)
            timer = None if deadline is None else self._loop.call_at(deadline, _settle, waiter, True)
            try:
                expired = await waiter
            finally:
                if timer is not None:
                    timer.cancel()
                self._waiters.discard(waiter)
            # A line that wakes the loop all the time may keep the timer waiting.
            is_late = expired or (deadline is not None and self._loop.time() >= deadline)
            if is_late and timeout is not None and not reached():
                raise self._timeout(what, timeout)

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            _settle(waiter, False)

    def _is_readable(self) -> bool:
        return self._has_unread or self._failure is not None

    def _is_sent(self) -> bool:
        return not self._writing_paused or self._failure is not None

    def _is_writable(self) -> bool:
        return self._is_sent()

    def _decode(self, data: bytes) -> bytes:
        """Return what the device has sent in `data`, which came while nothing waits to be read."""
        return data

    # The received bytes. The caller holds `_lock`.

    def _store(self, data: bytes) -> None:
        self._received.append(data)

    @property
    def _has_unread(self) -> bool:
        return bool(self._received)

    @property
    def _may_pause(self) -> bool:
        """Whether nobody needs the bytes behind those that wait to be read."""
        return True

    def _pop(self) -> bytes:
        """Remove and return what has arrived."""
        data = self._received.popleft() if len(self._received) == 1 else b"".join(self._received)
        self._received.clear()
        return data

    def _take(self) -> bytes:
        """Return what has arrived, or raise why there will be nothing."""
        if self._failure is not None and not self._has_unread:
            raise self._failure
        data = self._pop()
        self._unread_bytes = 0
        self._resume_reading()
        return data

    def _resume_reading(self) -> None:
        if self._reading_paused and self._failure is None:
            self._reading_paused = False
            if self.portal.is_here:
                self._transport.resume_reading()
            else:
                self.portal.post(self._transport.resume_reading)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _fail(self, failure: TransportError) -> None:
        """End all reads and writes with `failure`. Bytes that have arrived are still read first."""
        if self._failure is None:
            self._failure = failure
        self._stop_listening.set()
        self._wake()

    # Closing.

    def _begin_closing(self) -> None:
        if self._closed:
            return
        self._closed = True
        with self._lock:
            self._received.clear()
        self._fail(self._closed_error())
        self._transport.close()

    async def _aclose(self) -> None:
        assert self._keeper is not None
        self._begin_closing()
        await asyncio.wait({self._keeper}, timeout=CLOSE_SECONDS)
        if not self._lost.is_set():
            self._transport.abort()
        await asyncio.wait({self._keeper})

    async def _keep(self) -> None:
        try:
            await self._lost.wait()
        finally:
            if not self._lost.is_set():  # the loop ends
                self._begin_closing()
                self._transport.abort()
            if self._release is not None:
                await unbroken(off_loop(self._release))

    # Errors.

    def _lost_error(self, error: Exception | None) -> TransportError:
        hint = "Plug it in or start it again"
        if error is None:
            return TransportClosed("the device closed the line", where=self._where, hint=hint)
        number = getattr(error, "errno", None)
        reason = os.strerror(number) if number else str(error)
        return TransportClosed(f"the connection was lost ({reason})", where=self._where, hint=hint)

    def _closed_error(self) -> TransportClosed:
        return TransportClosed("the line was closed on this side", where=self._where)

    def _timeout(self, what: str, timeout: float) -> TransportTimeout:
        return TransportTimeout(f"the device {what} for {timeout:g} s", where=self._where)


def _settle(waiter: asyncio.Future[bool], expired: bool) -> None:
    if not waiter.done():
        waiter.set_result(expired)
