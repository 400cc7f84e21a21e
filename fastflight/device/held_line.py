"""Writes to a line that the caller holds, and reads it at the same time.

Bytes that the device sends while someone writes would be lost if nobody read them. The data that is read here goes to
the tap of the line, and so to every session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

from fastflight.errors import TransportError
from fastflight.lazy import Logger
from fastflight.transport import Port

log = Logger(__name__)

# A write without progress for this long fails: the device, or its flow control, has stopped.
WRITE_SECONDS = 30.0
# A line that is given back in the middle of a `send` has taken, and its tap has seen, at most this much more.
WRITE_BYTES = 4096


class LineTask:
    """Reads `port`, and writes what `send` is given, for an `async with` block.

    When the line breaks, `failure` is set and `on_failure` is called.
    """

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
            for start in range(0, len(data), WRITE_BYTES):
                await self._port.awrite(data[start : start + WRITE_BYTES], WRITE_SECONDS)
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
            await self._port.alisten()
        except Exception as error:  # the edge of the task: nobody awaits its result
            self._fail(error)

    def _fail(self, error: Exception) -> TransportError:
        """Report the first failure, and return `error` as a `TransportError`."""
        failure = error if isinstance(error, TransportError) else TransportError.unexpected(error)
        if failure is not error:  # a defect of this program
            log.error("using a line failed", exc_info=error)
        if self.failure is None:
            self.failure = failure
            self._on_failure(failure)
        return failure
