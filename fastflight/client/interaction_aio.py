"""An interactive session with a device for an event loop; see `interaction`."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

import pyarrow as pa

from fastflight.client.interaction import Interaction, Seeking
from fastflight.client.stream_aio import AsyncRowStream
from fastflight.concurrency.offload import off_loop, unbroken


class AsyncInteraction:
    """As `Interaction`, for one task."""

    def __init__(self, interaction: Interaction, rows: AsyncRowStream) -> None:
        self.rows = rows
        self._interaction = interaction
        self._unread = b""

    async def send(self, data: bytes | str) -> None:
        """Send this to the device, text as UTF-8."""
        await off_loop(self._interaction.send, data)

    async def receive(self) -> pa.RecordBatch | None:
        """The next rows of the session; None when it has ended."""
        return await anext(self.rows, None)

    async def read_until(self, mark: bytes, *, timeout: float | None = None) -> bytes:
        """As `Interaction.read_until`."""
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
        """Give the line back. What the device said until then is in `rows`, whose `summary` is there after this."""
        await off_loop(self._interaction.done)  # a send that was given up may still wait for the device
        async for _ in self.rows:
            pass
        await off_loop(self._interaction.close)

    def cancel(self) -> None:
        """Leave at once. Whoever reads gets `Stopped`."""
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
