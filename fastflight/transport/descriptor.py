"""A port on a POSIX file descriptor, such as a pseudo-terminal. `Watch` waits for it, on event loops and in threads."""

from __future__ import annotations

import errno
import os
import select
import threading
from collections.abc import Callable

from fastflight.concurrency import off_loop
from fastflight.concurrency.offload import unbroken
from fastflight.errors import TransportClosed, TransportError, TransportTimeout
from fastflight.transport.port import READ_BYTES
from fastflight.transport.watch import Watch, is_timeout

# The errors that mean that the other end is gone, such as EIO from a terminal whose child has exited, or ENXIO and
# ENODEV from a serial port that was unplugged.
GONE = frozenset(
    {errno.EIO, errno.EPIPE, errno.ECONNRESET, errno.ENXIO, errno.ENODEV, errno.EBADF, errno.ENOTCONN, errno.ETIMEDOUT}
)


class DescriptorPort:
    """A `Port` on `descriptor`, which it makes non-blocking. `release` must close it, and what is behind it."""

    def __init__(self, descriptor: int, where: str, release: Callable[[], None]) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._where = where
        self._release = release
        self._closing = threading.Lock()
        self._closed = False
        self._watch = Watch(descriptor, self._take, for_threads=True, extra=self._extra_descriptors)

    def _extra_descriptors(self) -> tuple[int, ...]:
        """Return further descriptors for `Watch`: a wait times out early when one of them becomes readable."""
        return ()

    @property
    def bytes_per_second(self) -> float | None:
        return None

    def read(self, timeout: float) -> bytes:
        try:
            return self._check_received(self._watch.read_blocking(timeout))
        except OSError as error:
            raise self._translate(error, "sent nothing", timeout) from error

    def write(self, data: bytes, timeout: float) -> None:
        rest = memoryview(data)
        try:
            while rest:
                written = self._try_write(rest)
                rest = rest[written:]
                if rest and not written:
                    self._watch.wait_blocking(select.POLLOUT, timeout)
        except OSError as error:
            raise self._translate(error, "took no byte", timeout) from error

    def close(self) -> None:
        with self._closing:
            if self._closed:
                return
            self._closed = True
        self._watch.close()
        self._release()

    async def aread(self, timeout: float) -> bytes:
        try:
            return self._check_received(await self._watch.read(timeout))
        except OSError as error:
            raise self._translate(error, "sent nothing", timeout) from error

    async def awrite(self, data: bytes, timeout: float) -> None:
        rest = memoryview(data)
        try:
            while rest:
                written = self._try_write(rest)
                rest = rest[written:]
                if rest and not written:
                    await self._watch.room(timeout)
        except OSError as error:
            raise self._translate(error, "took no byte", timeout) from error

    async def aclose(self) -> None:
        # `release` may block.
        await unbroken(off_loop(self.close))

    def _take(self) -> bytes:
        return os.read(self._checked_descriptor(), READ_BYTES)

    def _checked_descriptor(self) -> int:
        """Return the descriptor. `OSError` if the port is closed: another file may have its number then."""
        if self._closed:
            raise OSError(errno.EBADF, "closed")
        return self._descriptor

    def _check_received(self, data: bytes) -> bytes:
        if not data:
            raise TransportClosed("the device closed the line", where=self._where, hint="Plug it in or start it again")
        return data

    def _try_write(self, data: memoryview) -> int:
        try:
            return os.write(self._checked_descriptor(), data)
        except (BlockingIOError, InterruptedError):
            return 0

    def _translate(self, error: OSError, what: str, timeout: float) -> TransportError:
        if is_timeout(error):
            return TransportTimeout(f"the device {what} for {timeout:g} s", where=self._where)
        if self._closed:
            return TransportClosed("the line was closed on this side", where=self._where)
        if error.errno in GONE:
            return TransportClosed(
                f"the line went away ({error.strerror})", where=self._where, hint="Plug it in or start it again"
            )
        return TransportError(f"the line failed ({error.strerror})", where=self._where)
