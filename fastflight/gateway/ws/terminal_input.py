"""Passes what a user types in a terminal from the gateway's loop to an exchange with a device on another loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator

import pyarrow as pa

from fastflight.concurrency import Channel
from fastflight.errors import Stopped
from fastflight.gateway.errors import HttpRefusal
from fastflight.service.source import held_bytes
from fastflight.tables.bare import one_content

INPUT_SCHEMA = pa.schema([pa.field("data", pa.binary(), nullable=False)])
# Bytes that wait to be sent to the device: a pasted file. A line at 115200 baud takes a minute and a half for it.
MAX_INPUT_BYTES = 1024 * 1024


class TerminalInput:
    """A queue of typed bytes. One task iterates it, until `end` was called and all bytes were taken."""

    def __init__(self) -> None:
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._ended = False
        self._changed = asyncio.Event()

    def put(self, data: bytes) -> None:
        """Add bytes; raise `HttpRefusal` when too many wait.

        This never waits, so that the task that receives notices at once when the client leaves.
        """
        if not data:
            return  # nothing to send; the limit on bytes would not limit empty messages
        if self._bytes + len(data) > MAX_INPUT_BYTES:
            raise HttpRefusal(
                413,
                f"{self._bytes} bytes wait for the device already",
                where="message",
                hint=f"At most {MAX_INPUT_BYTES} may: send less at once, or upload a file",
            )
        self._waiting.append(data)
        self._bytes += len(data)
        self._changed.set()

    def end(self) -> None:
        self._ended = True
        self._changed.set()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            while self._waiting:
                data = self._waiting.popleft()
                self._bytes -= len(data)
                yield data
            if self._ended:
                return
            self._changed.clear()
            await self._changed.wait()


@contextlib.asynccontextmanager
async def forwarding(typed: AsyncIterator[bytes], channel: Channel[pa.RecordBatch]) -> AsyncIterator[None]:
    """Put what is `typed` into the channel while the block runs."""
    feeding = asyncio.ensure_future(_feed(typed, channel))
    try:
        yield
    finally:
        channel.close()
        feeding.cancel()
        await asyncio.wait([feeding])


async def _feed(typed: AsyncIterator[bytes], channel: Channel[pa.RecordBatch]) -> None:
    try:
        async for data in typed:
            batch = pa.RecordBatch.from_arrays([one_content(data)], schema=INPUT_SCHEMA)
            await channel.aput(batch, held_bytes(batch, len(data)))
        channel.finish()
    except Stopped:
        return  # the exchange has ended, and its answer says why
    except Exception as error:
        channel.fail(error)
