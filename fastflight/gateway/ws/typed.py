"""What somebody types on its way to a device: from the gateway's loop to an exchange on another one."""

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

TYPED = pa.schema([pa.field("data", pa.binary(), nullable=False)])
# What waits to be sent to the device: a pasted file, for which a line at 115200 baud takes a minute and a half.
MAX_TYPED_BYTES = 1024 * 1024


class Typed:
    """Bytes in the order in which they were typed. Iterated by one task; `end` is its end."""

    def __init__(self) -> None:
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._ended = False
        self._came = asyncio.Event()

    def put(self, data: bytes) -> None:
        """Never waits, so that one who leaves is seen at once; `HttpRefusal` when too much waits."""
        if not data:
            return  # nothing of it would reach the device, and any number would wait
        if self._bytes + len(data) > MAX_TYPED_BYTES:
            raise HttpRefusal(
                413,
                f"{self._bytes} bytes wait for the device already",
                where="message",
                hint=f"At most {MAX_TYPED_BYTES} may: send less at once, or upload a file",
            )
        self._waiting.append(data)
        self._bytes += len(data)
        self._came.set()

    def end(self) -> None:
        self._ended = True
        self._came.set()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            while self._waiting:
                data = self._waiting.popleft()
                self._bytes -= len(data)
                yield data
            if self._ended:
                return
            self._came.clear()
            await self._came.wait()


@contextlib.asynccontextmanager
async def handing_in(typed: AsyncIterator[bytes], handed: Channel[pa.RecordBatch]) -> AsyncIterator[None]:
    """Hand in what is `typed`, for the length of the block."""
    feeding = asyncio.ensure_future(_feed(typed, handed))
    try:
        yield
    finally:
        handed.close()
        feeding.cancel()
        await asyncio.wait([feeding])


async def _feed(typed: AsyncIterator[bytes], handed: Channel[pa.RecordBatch]) -> None:
    try:
        async for data in typed:
            batch = pa.RecordBatch.from_arrays([one_content(data)], schema=TYPED)
            await handed.aput(batch, held_bytes(batch, len(data)))
        handed.finish()
    except Stopped:
        return  # the exchange has ended, and says why
    except Exception as error:
        handed.fail(error)
