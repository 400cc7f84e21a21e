"""`AsyncInteraction`: an interactive session with a device for an event loop; see `interaction`."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

import pyarrow as pa

from fastflight.client.argument_types import checks_arguments
from fastflight.client.interaction import Interaction, Seeking
from fastflight.client.stream_aio import AsyncRowStream
from fastflight.concurrency.offload import off_loop, unbroken


@checks_arguments
class AsyncInteraction:
    """Like `Interaction`, for one task."""

    def __init__(self, interaction: Interaction, rows: AsyncRowStream) -> None:
        self.rows = rows
        self._interaction = interaction
        self._unread = b""

    async def send(self, data: bytes | str) -> None:
        """Send bytes to the device, or text as UTF-8."""
        await off_loop(self._interaction.send, data)

    async def receive(self) -> pa.RecordBatch | None:
        """Return the next rows of the session, or None when it has ended."""
        return await anext(self.rows, None)

    async def read_until(self, mark: bytes, *, timeout: float | None = None) -> bytes:
        """See `Interaction.read_until`."""
        seeking = Seeking(mark, self._unread, timeout)
        try:
            async with asyncio.timeout(timeout):
                while not seeking.found:
                    seeking.feed(await self.receive())
        except TimeoutError as error:
            self._unread = seeking.data
            raise seeking.timed_out() from error
        self._unread = b""
        return seeking.data

    async def aclose(self) -> None:
        """End the session and release the line. Skips the remaining rows; then `rows.summary` is available."""
        await off_loop(self._interaction.done)  # in a thread: a cancelled send may still be waiting for the device
        async for _ in self.rows:
            pass
        await off_loop(self._interaction.close)

    def cancel(self) -> None:
        """End the session at once. A task that is reading gets `Stopped`."""
        self.rows.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                await self.aclose()
        finally:
            await unbroken(self._leave())

    async def _leave(self) -> None:
        async with self.rows:
            await off_loop(self._interaction.cancel)
        await off_loop(self._interaction.settle)
