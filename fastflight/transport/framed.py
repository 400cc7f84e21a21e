"""Ports whose bytes are wrapped in a protocol, such as RFC 2217 or WebREPL, on a connection to its server.

`FramedConnection` is for several callers at once. Received bytes go to the `Framing`. One caller at a time reads from
the server. The other waiting callers return when the client was fed, and then check whether it has what they need. So
`read` returns no bytes: the client has them.

A command that is cut off would swallow the bytes sent after it. So one caller at a time writes, and when a write fails
or is cancelled, the next write finishes its command first. The client's answers to the server are sent by the caller
that has read the question, or by the caller that is writing at that moment.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Protocol

from fastflight.errors import TransportTimeout
from fastflight.transport.run import WRITE_SECONDS
from fastflight.transport.socket import SocketPort

IAC = b"\xff"


class Framing(Protocol):
    """The client's side of a protocol, without I/O."""

    @property
    def unsent(self) -> bool:
        """Whether there is something to `take`."""

    @property
    def unread(self) -> bool:
        """Whether there is something to `read`."""

    def take(self) -> bytes:
        """Remove and return the bytes that must be sent to the server now."""

    def feed(self, data: bytes) -> None:
        """Process bytes from the server."""

    def read(self) -> bytes:
        """Remove and return the line's data received so far; may be empty."""


class FramedConnection:
    """Feeds `client` with the bytes of `stream`. A `Port` for the client's conversations."""

    def __init__(self, stream: SocketPort, client: Framing) -> None:
        self._stream = stream
        self._client = client
        # Tasks take `_reading` to read; threads use `_change` and `_being_read`.
        self._reading = _ThreadOrTaskLock()
        self._change = threading.Condition()
        self._being_read = False
        self._writing = _ThreadOrTaskLock()
        # One thread may feed the client while another has it encode.
        self._encoding = threading.Lock()
        # How often the client was fed in total, and up to each thread's last call of `read`.
        self._fed = 0
        self._seen = threading.local()
        # The rest of a command that a failed write has cut off.
        self._unfinished = b""

    @property
    def bytes_per_second(self) -> float | None:
        return self._stream.bytes_per_second

    def read(self, timeout: float) -> bytes:
        """Return as soon as the client was fed since this thread's last call. The result is always empty."""
        deadline = time.monotonic() + timeout
        with self._change:
            # Bytes fed before the end of this thread's last call are known to it.
            seen = getattr(self._seen, "fed", None)
            if not self._change.wait_for(lambda: self._fed != seen or not self._being_read, timeout):
                raise TransportTimeout("another thread waited for the server, and nothing came")
            self._seen.fed = self._fed
            if self._fed != seen:
                return b""
            self._being_read = True
        data = b""
        try:
            data = self._stream.read(_left(deadline))
        finally:
            with self._change:
                self._being_read = False
                self._feed(data)
                self._seen.fed = self._fed
                self._change.notify_all()
        self._answer()
        return b""

    def write(self, data: bytes, timeout: float) -> None:
        """Send commands. If the write fails, the next write sends the rest of them first."""
        self._write(data, timeout, commands=True)

    def write_text(self, data: bytes, timeout: float) -> None:
        """Send encoded data of a Telnet line. If the write fails, the rest of the data is dropped."""
        self._write(data, timeout, commands=False)

    def send(self, encode: Callable[[], bytes], timeout: float) -> None:
        """Send what `encode` returns. It is called when nobody else writes: some protocols number what they send."""
        with self._writing.held_by_thread(timeout), self._with_unfinished(self._locked(encode), True) as whole:
            self._stream.write(whole, timeout)
        self._answer()

    def close(self) -> None:
        self._stream.close()

    async def asend(self, encode: Callable[[], bytes], timeout: float) -> None:
        """As `send`."""
        async with self._writing.held_by_task(timeout):
            with self._with_unfinished(self._locked(encode), True) as whole:
                await self._stream.awrite(whole, timeout)
        await self._aanswer()

    async def aread(self, timeout: float) -> bytes:
        """As `read`."""
        fed, deadline = self._fed, time.monotonic() + timeout
        async with self._reading.held_by_task(timeout):
            if self._fed == fed:
                self._feed(await self._stream.aread(_left(deadline)))
        await self._aanswer()
        if not self._client.unread:
            # A server that sends commands without end must not block the loop's other tasks.
            await asyncio.sleep(0)
        return b""

    async def awrite(self, data: bytes, timeout: float) -> None:
        """As `write`."""
        await self._awrite(data, timeout, commands=True)

    async def awrite_text(self, data: bytes, timeout: float) -> None:
        """As `write_text`."""
        await self._awrite(data, timeout, commands=False)

    async def aclose(self) -> None:
        self.close()

    def _write(self, data: bytes, timeout: float, *, commands: bool) -> None:
        with self._writing.held_by_thread(timeout), self._with_unfinished(data, commands) as whole:
            self._stream.write(whole, timeout)
        self._answer()

    async def _awrite(self, data: bytes, timeout: float, *, commands: bool) -> None:
        async with self._writing.held_by_task(timeout):
            with self._with_unfinished(data, commands) as whole:
                await self._stream.awrite(whole, timeout)
        await self._aanswer()

    def _feed(self, data: bytes) -> None:
        with self._encoding:
            self._client.feed(data)
        self._fed += 1

    def _locked(self, encode: Callable[[], bytes]) -> bytes:
        with self._encoding:
            return encode()

    def _answer(self) -> None:
        """Send the client's answers, unless another caller is writing, which then sends them afterwards."""
        while self._client.unsent and self._writing.is_free:
            with (
                self._writing.held_by_thread(WRITE_SECONDS),
                self._with_unfinished(self._locked(self._client.take), True) as whole,
            ):
                self._stream.write(whole, WRITE_SECONDS)

    async def _aanswer(self) -> None:
        while self._client.unsent and self._writing.is_free:
            async with self._writing.held_by_task(WRITE_SECONDS):
                with self._with_unfinished(self._locked(self._client.take), True) as whole:
                    await self._stream.awrite(whole, WRITE_SECONDS)

    @contextmanager
    def _with_unfinished(self, data: bytes, commands: bool) -> Iterator[bytes]:
        """Yield the unfinished command followed by `data`. After the block, keep what was not sent of a command."""
        whole, old, before = self._unfinished + data, len(self._unfinished), self._stream.written
        try:
            yield whole
        finally:
            sent = self._stream.written - before
            if commands or sent < old:
                self._unfinished = whole[sent : None if commands else old]
            else:
                text = whole[old:sent]
                # In data, each IAC is doubled. After an odd number of them, the second of a pair is missing.
                self._unfinished = IAC if (len(text) - len(text.rstrip(IAC))) % 2 else b""


class FramedPort:
    """The part that ports share: reading and closing. A port adds its way of writing."""

    def __init__(self, stream: SocketPort, client: Framing, where: str) -> None:
        self._where = where
        self._framing = client
        self._connection = FramedConnection(stream, client)

    def read(self, timeout: float) -> bytes:
        with self._within(timeout, "sent nothing") as left:
            while not (data := self._framing.read()):
                self._connection.read(left())
        return data

    def close(self) -> None:
        self._connection.close()

    async def aread(self, timeout: float) -> bytes:
        with self._within(timeout, "sent nothing") as left:
            while not (data := self._framing.read()):
                await self._connection.aread(left())
        return data

    async def aclose(self) -> None:
        self.close()

    @contextmanager
    def _within(self, timeout: float, what: str) -> Iterator[Callable[[], float]]:
        """Yield a function that returns what is left of `timeout`. Call it before each wait.

        So a server that sends only commands, and no data, does not extend the time.
        """
        try:
            yield Deadline(timeout)
        except TransportTimeout as error:
            raise TransportTimeout(f"the device {what} for {timeout:g} s", where=self._where) from error


class Deadline:
    """Calling it returns the seconds left, at least 0. When the time is up, all calls but the first raise instead."""

    def __init__(self, timeout: float) -> None:
        self._end = time.monotonic() + timeout
        self._first = True

    def __call__(self) -> float:
        left = self._end - time.monotonic()
        if left <= 0 and not self._first:
            raise TransportTimeout("time is up")
        self._first = False
        return max(0.0, left)


class _ThreadOrTaskLock:
    """A lock for threads, or for the tasks of one loop. A port is used by only one of the two kinds at a time."""

    def __init__(self) -> None:
        self._thread = threading.Lock()
        self._task = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_free(self) -> bool:
        return not self._thread.locked() and not self._task.locked()

    @contextmanager
    def held_by_thread(self, timeout: float) -> Iterator[None]:
        if not self._thread.acquire(timeout=timeout):
            raise TransportTimeout("another thread used the line all the time")
        try:
            yield
        finally:
            self._thread.release()

    @asynccontextmanager
    async def held_by_task(self, timeout: float) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._task = loop, asyncio.Lock()
        lock = self._task
        try:
            async with asyncio.timeout(timeout if lock.locked() else None):
                await lock.acquire()
        except TimeoutError:
            raise TransportTimeout("another task used the line all the time") from None
        try:
            yield
        finally:
            lock.release()


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())
