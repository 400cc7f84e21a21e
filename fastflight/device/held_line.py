"""Writes to a line that the caller holds, and reads it at the same time.

Bytes that the device sends while someone writes would be lost if nobody read them. The data that is read here goes to
the tap of the line, and so to every session. `LineThread` does for a thread what `LineTask` does on an event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

from fastflight.errors import TransportError
from fastflight.lazy import Logger
from fastflight.transport.tapped import TappedPort

log = Logger(__name__)

# A write without progress for this long fails: the device, or its flow control, has stopped.
WRITE_SECONDS = 30.0
# A line that is given back in the middle of a `send` has taken, and its tap has seen, at most this much more.
WRITE_BYTES = 4096


class LineTask:
    """Reads `port`, and writes what `send` is given, for an `async with` block.

    When the line breaks, `failure` is set and `on_failure` is called.
    """

    def __init__(self, port: TappedPort, on_failure: Callable[[TransportError], None]) -> None:
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


class LineThread:
    """As `LineTask`, for a `with` block of a thread. Other threads may call `send` and `give_back`."""

    def __init__(self, port: TappedPort, on_failure: Callable[[TransportError], None]) -> None:
        self._portal = port.portal
        self._line = LineTask(port, on_failure)
        # Used on the loop only.
        self._sending: set[asyncio.Task[None]] = set()
        self._is_given_back = False

    @property
    def failure(self) -> TransportError | None:
        """Why the line broke; None while it works."""
        return self._line.failure

    def send(self, data: bytes) -> None:
        """Write `data` and return when the port has taken all of it. `TransportError` if the line broke.

        The same error comes if the line was given back.
        """
        self._portal.call(self._send(data))

    def give_back(self) -> None:
        """Stop writing, also in the middle of a `send`: a slow line takes minutes for pasted text."""
        self._portal.post(self._give_back)

    def __enter__(self) -> Self:
        self._portal.call(self._line.__aenter__())
        return self

    def __exit__(self, *exc: object) -> None:
        self._portal.call(self._leave())

    async def _send(self, data: bytes) -> None:
        if self._is_given_back:
            raise self.failure or _given_back()
        sending = asyncio.ensure_future(self._line.send(data))
        self._sending.add(sending)
        try:
            await sending
        except asyncio.CancelledError:
            if self._is_given_back:
                raise _given_back() from None
            raise
        finally:
            self._sending.discard(sending)

    def _give_back(self) -> None:
        self._is_given_back = True
        for sending in self._sending:
            sending.cancel()

    async def _leave(self) -> None:
        self._give_back()
        await self._line.__aexit__()


def _given_back() -> TransportError:
    return TransportError("the line was given back")
