"""A line that is held to write to it, and read meanwhile.

What the device says while somebody writes to it would be lost if nobody read it; what is read is seen by the line's
tap, and so by every session. A port is used by one thread at a time: `LineThread` is that thread, and others hand it
what they want written.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Self

import structlog

from fastflight.errors import TransportError, TransportTimeout
from fastflight.transport import Port
from fastflight.transport.port import Gathering

log = structlog.get_logger(__name__)

# Without progress for so long, the device takes nothing any more: it is stopped, or its flow control is.
WRITE_SECONDS = 30.0
# How long a thread's write may have to wait for the reading to look up.
POLL_SECONDS = 0.01
# How often one that sends looks whether it is still wanted.
CHECK_SECONDS = 0.1
# Written between two looks at what the device says: less than the receive buffers that the system has for it.
WRITE_BYTES = 512
# A quiet device is waited for again after this.
QUIET_SECONDS = 3600.0


class LineThread:
    """Reads `port` and writes to it what is sent, for a `with` block. `failed` is called when the line breaks."""

    def __init__(self, port: Port, failed: Callable[[TransportError], None]) -> None:
        self.failure: TransportError | None = None
        self._port = port
        self._failed = failed
        self._lock = threading.Lock()
        self._waiting: deque[tuple[bytes, concurrent.futures.Future[None]]] = deque()
        self._over = False
        self._thread = threading.Thread(target=self._run, name="held-line", daemon=True)

    def send(self, data: bytes, check: Callable[[], object] = bool) -> None:
        """Return when `data` is handed to the line, from any thread. `TransportError` if it broke or was given back.

        `check` is called now and then: what it raises is raised here, and the line is to be given back then.
        """
        check()
        done: concurrent.futures.Future[None] = concurrent.futures.Future()
        with self._lock:
            if self._over:
                raise self.failure or _given_back()
            self._waiting.append((data, done))
        while not concurrent.futures.wait([done], CHECK_SECONDS).done:
            check()
        done.result()

    def give_back(self) -> None:
        """Write no more, also of what is being sent: a slow line takes minutes for what is pasted. From any thread."""
        with self._lock:
            self._over = True

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.give_back()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._over:
                with self._lock:
                    data, done = self._waiting.popleft() if self._waiting else (b"", None)
                try:
                    whole = self._write(data)
                except Exception as error:
                    told = _told(error)
                    if done is not None:
                        done.set_exception(told)
                    raise told from error
                if done is None:
                    self._read(POLL_SECONDS)
                elif whole:
                    done.set_result(None)
                else:
                    done.set_exception(_given_back())
        except Exception as error:  # the thread's edge: whoever waits is told
            self.failure = _told(error)
        with self._lock:
            self._over = True
            waiting, self._waiting = self._waiting, deque()
        for _, done in waiting:
            done.set_exception(self.failure or _given_back())
        if self.failure is not None:
            self._failed(self.failure)

    def _write(self, data: bytes) -> bool:
        """False when it was given back before all of it was written."""
        for start in range(0, len(data), WRITE_BYTES):
            if self._over:
                return False
            self._port.write(data[start : start + WRITE_BYTES], WRITE_SECONDS)
            self._read(0.0)
        return True

    def _read(self, timeout: float) -> None:
        with contextlib.suppress(TransportTimeout):
            self._port.read(timeout)


def _told(error: Exception) -> TransportError:
    """How the line failed. What is no failure of the line is a defect here, and is logged."""
    if isinstance(error, TransportError):
        return error
    log.error("using a line failed", exc_info=error)
    return TransportError.unexpected(error)


def _given_back() -> TransportError:
    return TransportError("the line was given back")


class LineTask:
    """As `LineThread`, for an `async with` block."""

    def __init__(self, port: Port, failed: Callable[[TransportError], None]) -> None:
        self.failure: TransportError | None = None
        self._port = port
        self._failed = failed
        self._task: asyncio.Task[None] | None = None

    async def send(self, data: bytes) -> None:
        """Return when `data` is handed to the line."""
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
        except Exception as error:  # the task's edge: whoever waits is told
            self._fail(error)

    def _fail(self, error: Exception) -> TransportError:
        """What whoever waits is told."""
        told = _told(error)
        if self.failure is None:
            self.failure = told
            self._failed(told)
        return told
