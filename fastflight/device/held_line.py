"""Writes to a line that the caller holds, and reads it at the same time.

Bytes that the device sends while someone writes would be lost if nobody read them. The data that is read here goes to
the tap of the line, and so to every session. A port may be used by one thread at a time only: `LineThread` is that
thread, and others give it their data with `send`. `LineTask` does the same on an event loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Self

from fastflight.errors import TransportError, TransportTimeout
from fastflight.lazy import Logger
from fastflight.transport import Port
from fastflight.transport.port import Gathering

log = Logger(__name__)

# A write without progress for this long fails: the device, or its flow control, has stopped.
WRITE_SECONDS = 30.0
# Time limit of one read: the longest that a write waits for the reading thread.
POLL_SECONDS = 0.01
# The same while bytes have passed in the last `BUSY_SECONDS`: the answer to what the device sends should not wait.
BUSY_POLL_SECONDS, BUSY_SECONDS = 0.001, 0.1
# How often `send` calls `check`.
CHECK_SECONDS = 0.1
# Bytes written between two reads: less than the system's receive buffers, so that they cannot overflow.
WRITE_BYTES = 512
# Time limit of one read on an event loop; the read is repeated after it.
QUIET_SECONDS = 3600.0


class LineThread:
    """Reads `port`, and writes what `send` is given, for a `with` block.

    When the line breaks, `failure` is set and `on_failure` is called.
    """

    def __init__(self, port: Port, on_failure: Callable[[TransportError], None]) -> None:
        self.failure: TransportError | None = None
        self._port = port
        self._on_failure = on_failure
        self._lock = threading.Lock()
        self._waiting: deque[tuple[bytes, concurrent.futures.Future[None]]] = deque()
        self._closed = False
        self._busy_until = 0.0
        self._thread = threading.Thread(target=self._run, name="held-line", daemon=True)

    def send(self, data: bytes, check: Callable[[], object] = bool) -> None:
        """Write `data` and return when the port has taken all of it. From any thread.

        `TransportError` if the line broke or was given back. `check` is called every `CHECK_SECONDS`, and its errors
        are raised here. The caller must then leave the `with` block or call `give_back`: until then the thread goes on
        writing `data`.
        """
        check()
        done: concurrent.futures.Future[None] = concurrent.futures.Future()
        with self._lock:
            if self._closed:
                raise self.failure or _given_back()
            self._waiting.append((data, done))
        while not concurrent.futures.wait([done], CHECK_SECONDS).done:
            check()
        done.result()

    def give_back(self) -> None:
        """Stop writing, also in the middle of a `send`: a slow line takes minutes for pasted text. From any thread."""
        with self._lock:
            self._closed = True

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.give_back()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._closed:
                with self._lock:
                    data, done = self._waiting.popleft() if self._waiting else (b"", None)
                try:
                    complete = self._write(data)
                except Exception as error:
                    failure = _as_transport_error(error)
                    if done is not None:
                        done.set_exception(failure)
                    raise failure from error
                if done is None:
                    is_busy = time.monotonic() < self._busy_until
                    self._read(BUSY_POLL_SECONDS if is_busy else POLL_SECONDS)
                elif complete:
                    done.set_result(None)
                else:
                    done.set_exception(_given_back())
        except Exception as error:  # the edge of the thread: pass the failure to waiting callers
            self.failure = _as_transport_error(error)
        with self._lock:
            self._closed = True
            waiting, self._waiting = self._waiting, deque()
        for _, done in waiting:
            done.set_exception(self.failure or _given_back())
        if self.failure is not None:
            self._on_failure(self.failure)

    def _write(self, data: bytes) -> bool:
        """Return False if the line was given back before all of `data` was written."""
        for start in range(0, len(data), WRITE_BYTES):
            if self._closed:
                return False
            self._port.write(data[start : start + WRITE_BYTES], WRITE_SECONDS)
            self._read(0.0)
        return True

    def _read(self, timeout: float) -> None:
        with contextlib.suppress(TransportTimeout):
            self._port.read(timeout)
            self._busy_until = time.monotonic() + BUSY_SECONDS


def _as_transport_error(error: Exception) -> TransportError:
    """Return `error` as a `TransportError`. Any other kind is a defect of this program, and is logged."""
    if isinstance(error, TransportError):
        return error
    log.error("using a line failed", exc_info=error)
    return TransportError.unexpected(error)


def _given_back() -> TransportError:
    return TransportError("the line was given back")


class LineTask:
    """As `LineThread`, for an `async with` block."""

    def __init__(self, port: Port, on_failure: Callable[[TransportError], None]) -> None:
        self.failure: TransportError | None = None
        self._port = port
        self._on_failure = on_failure
        self._task: asyncio.Task[None] | None = None

    async def send(self, data: bytes) -> None:
        """Write `data` and return when the port has taken all of it. `TransportError` if the line broke."""
        if self.failure is not None:
            raise self.failure
        try:
            await self._port.awrite(data, WRITE_SECONDS)
            if isinstance(self._port, Gathering):
                await self._port.adrain(WRITE_SECONDS)
        except Exception as error:
            raise self._fail(error) from error

    async def __aenter__(self) -> Self:
        self._task = asyncio.ensure_future(self._run())
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _run(self) -> None:
        try:
            while True:
                with contextlib.suppress(TransportTimeout):
                    await self._port.aread(QUIET_SECONDS)
                # A device that floods its line is always ready: let the loop's other tasks run.
                await asyncio.sleep(0)
        except Exception as error:  # the edge of the task: nobody awaits its result
            self._fail(error)

    def _fail(self, error: Exception) -> TransportError:
        """Report the first failure, and return `error` as a `TransportError`."""
        failure = _as_transport_error(error)
        if self.failure is None:
            self.failure = failure
            self._on_failure(failure)
        return failure
