"""A port on a POSIX file descriptor that can be waited for: a pseudo-terminal.

The descriptor is set non-blocking. `Watch` waits for it on event loops, and lets it change hands.
"""

from __future__ import annotations

import errno
import os
import select
import threading
from collections.abc import Callable

from fastflight.errors import TransportClosed, TransportError, TransportTimeout
from fastflight.transport.port import READ_BYTES
from fastflight.transport.watch import Watch, ran_out

# What the system says when the other end is gone: EIO from a terminal whose child ended, ENXIO and ENODEV from a
# serial port that was pulled.
GONE = frozenset(
    {errno.EIO, errno.EPIPE, errno.ECONNRESET, errno.ENXIO, errno.ENODEV, errno.EBADF, errno.ENOTCONN, errno.ETIMEDOUT}
)


class DescriptorPort:
    """Reads and writes `descriptor`; `release` closes it, and whatever stands behind it."""

    def __init__(self, descriptor: int, where: str, release: Callable[[], None]) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._where = where
        self._release = release
        self._closing = threading.Lock()
        self._closed = False
        self._watch = Watch(descriptor, self._take)
        # Wakes a thread that waits in `read` or `write` when another one closes the port.
        self._wake_reader, self._wake_writer = os.pipe()

    @property
    def _watched(self) -> tuple[int, ...]:
        """More descriptors: a wait ends, as when its time is up, when there is something to read from one."""
        return ()

    @property
    def bytes_per_second(self) -> float | None:
        return None

    def read(self, timeout: float) -> bytes:
        while True:
            try:
                left = self._watch.left()
                return self._received(self._take() if left is None else left)
            except (BlockingIOError, InterruptedError):
                self._wait(select.POLLIN, timeout, "sent nothing")
            except OSError as error:
                raise self._translated(error) from error

    def write(self, data: bytes, timeout: float) -> None:
        rest = memoryview(data)
        while rest:
            written = self._try_write(rest)
            rest = rest[written:]
            if rest and not written:
                self._wait(select.POLLOUT, timeout, "took no byte")

    def close(self) -> None:
        with self._closing:
            if self._closed:
                return
            self._closed = True
        os.write(self._wake_writer, b"x")
        self._watch.end()
        try:
            self._release()
        finally:
            os.close(self._wake_writer)
            os.close(self._wake_reader)

    async def aread(self, timeout: float) -> bytes:
        try:
            return self._received(await self._watch.read(timeout))
        except OSError as error:
            if ran_out(error):
                raise self._timed_out("sent nothing", timeout) from None
            raise self._translated(error) from error

    async def apour(self, give: Callable[[bytes], object]) -> None:
        try:
            ended = await self._watch.pour(give)
        except OSError as error:
            raise self._translated(error) from error
        if ended:
            self._received(b"")

    async def awrite(self, data: bytes, timeout: float) -> None:
        rest = memoryview(data)
        while rest:
            written = self._try_write(rest)
            rest = rest[written:]
            if rest and not written:
                try:
                    await self._watch.room(timeout)
                except TimeoutError:
                    raise self._timed_out("took no byte", timeout) from None

    async def aclose(self) -> None:
        self.close()

    def _take(self) -> bytes:
        return os.read(self._open(), READ_BYTES)

    def _open(self) -> int:
        """The descriptor. Its number may be another's when the port is closed."""
        if self._closed:
            raise OSError(errno.EBADF, "closed")
        return self._descriptor

    def _received(self, data: bytes) -> bytes:
        if not data:
            raise TransportClosed("the device closed the line", where=self._where, hint="Plug it in or start it again")
        return data

    def _try_write(self, data: memoryview) -> int:
        try:
            return os.write(self._open(), data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            raise self._translated(error) from error

    def _wait(self, event: int, timeout: float, what: str) -> None:
        poll = select.poll()
        poll.register(self._descriptor, event)
        poll.register(self._wake_reader, select.POLLIN)
        for each in self._watched:
            poll.register(each, select.POLLIN)
        if not {descriptor for descriptor, _ in poll.poll(timeout * 1000)}.difference(self._watched):
            raise self._timed_out(what, timeout)

    def _timed_out(self, what: str, timeout: float) -> TransportTimeout:
        return TransportTimeout(f"the device {what} for {timeout:g} s", where=self._where)

    def _translated(self, error: OSError) -> TransportError:
        if self._closed:
            return TransportClosed("the line was closed on this side", where=self._where)
        if error.errno in GONE:
            return TransportClosed(
                f"the line went away ({error.strerror})", where=self._where, hint="Plug it in or start it again"
            )
        return TransportError(f"the line failed ({error.strerror})", where=self._where)
