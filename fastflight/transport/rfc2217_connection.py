"""The connection below an RFC 2217 port: bytes from and to the server, for several callers at once.

Received bytes are fed to the client, by one caller at a time. A caller that waits meanwhile returns when the client was
fed, and then asks the client whether it has what the caller needs. So `read` returns no bytes: they are the client's.

A command that is cut off would swallow the bytes sent after it. So one caller at a time writes, and when a write fails
or is cancelled, the next write finishes its command first. The client's own answers are sent by the caller that read
what they answer, or by the caller that is writing just then.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from fastflight.errors import TransportTimeout
from fastflight.protocol.rfc2217_client import Rfc2217Client
from fastflight.transport.run import WRITE_SECONDS
from fastflight.transport.socket import SocketPort

IAC = b"\xff"


class Rfc2217Connection:
    """Feeds `client` from `stream`. A `Port` for the client's conversations."""

    def __init__(self, stream: SocketPort, client: Rfc2217Client) -> None:
        self._stream = stream
        self._client = client
        # The reader is a task in its turn, or the one thread that found no other reading.
        self._reading = _Turn()
        self._change = threading.Condition()
        self._being_read = False
        self._writing = _Turn()
        # How often the client was fed, in all and until each thread last looked.
        self._fed = 0
        self._seen = threading.local()
        # The rest of a command that a failed write cut off.
        self._unfinished = b""

    @property
    def bytes_per_second(self) -> float | None:
        return self._stream.bytes_per_second

    def read(self, timeout: float) -> bytes:
        """Return when the client was fed since this thread's last call."""
        deadline = time.monotonic() + timeout
        with self._change:
            # This thread has seen what the client had at the end of its last call.
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
        """Send commands. What a failed write leaves of them goes with the next write."""
        self._write(data, timeout, commands=True)

    def write_text(self, data: bytes, timeout: float) -> None:
        """Send encoded data."""
        self._write(data, timeout, commands=False)

    def close(self) -> None:
        self._stream.close()

    async def aread(self, timeout: float) -> bytes:
        """As `read`."""
        fed, deadline = self._fed, time.monotonic() + timeout
        async with self._reading.of_task(timeout):
            if self._fed == fed:
                self._feed(await self._stream.aread(_left(deadline)))
        await self._aanswer()
        if not self._client.unread:
            # A server that sends commands without end must not keep the loop from everybody else.
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
        with self._writing.of_thread(timeout), self._with_unfinished(data, commands) as whole:
            self._stream.write(whole, timeout)
        self._answer()

    async def _awrite(self, data: bytes, timeout: float, *, commands: bool) -> None:
        async with self._writing.of_task(timeout):
            with self._with_unfinished(data, commands) as whole:
                await self._stream.awrite(whole, timeout)
        await self._aanswer()

    def _feed(self, data: bytes) -> None:
        self._client.feed(data)
        self._fed += 1

    def _answer(self) -> None:
        """Send the client's answers, unless another caller is writing, which then sends them."""
        while self._client.unsent and self._writing.is_free:
            with self._writing.of_thread(WRITE_SECONDS), self._with_unfinished(self._client.take(), True) as whole:
                self._stream.write(whole, WRITE_SECONDS)

    async def _aanswer(self) -> None:
        while self._client.unsent and self._writing.is_free:
            async with self._writing.of_task(WRITE_SECONDS):
                with self._with_unfinished(self._client.take(), True) as whole:
                    await self._stream.awrite(whole, WRITE_SECONDS)

    @contextmanager
    def _with_unfinished(self, data: bytes, commands: bool) -> Iterator[bytes]:
        """The unfinished command, then `data`. Afterwards, keeps what this write left unfinished."""
        whole, old, before = self._unfinished + data, len(self._unfinished), self._stream.written
        try:
            yield whole
        finally:
            sent = self._stream.written - before
            if commands or sent < old:
                self._unfinished = whole[sent : None if commands else old]
            else:
                text = whole[old:sent]
                # In data, IAC stands twice. After an odd number of them, the second half of a pair is missing.
                self._unfinished = IAC if (len(text) - len(text.rstrip(IAC))) % 2 else b""


class _Turn:
    """A lock for threads, and for the tasks of the running loop. A port is used by one of the two kinds at a time."""

    def __init__(self) -> None:
        self._thread = threading.Lock()
        self._task = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_free(self) -> bool:
        return not self._thread.locked() and not self._task.locked()

    @contextmanager
    def of_thread(self, timeout: float) -> Iterator[None]:
        if not self._thread.acquire(timeout=timeout):
            raise TransportTimeout("another thread used the line all the time")
        try:
            yield
        finally:
            self._thread.release()

    @asynccontextmanager
    async def of_task(self, timeout: float) -> AsyncIterator[None]:
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
