from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pyarrow as pa
import pytest

from fastflight.cli.workers.passing import HANDIN_BYTES, AsyncExchange
from fastflight.cli.workers.pool import Worker
from fastflight.concurrency import Governor
from fastflight.errors import TransportClosed
from fastflight.service.requests import DeviceSession

SCHEMA = pa.schema([("data", pa.binary())])


class Gone:
    """A worker that has ended, once it is asked for `after` something."""

    def __init__(self, after: asyncio.Event) -> None:
        self.governor = Governor()
        self._loop = asyncio.get_running_loop()
        self._after = after

    @contextmanager
    def connected(self, where: str) -> Iterator[Any]:
        asyncio.run_coroutine_threadsafe(self._after.wait(), self._loop).result()
        raise TransportClosed("worker 0 has ended", where=where)
        yield


class Typed:
    """What a client sends: more than waits on the way to a worker. `sent` when the last of it is asked for."""

    def __init__(self, sent: asyncio.Event) -> None:
        self._sent = sent
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        yield pa.record_batch([pa.array([bytes(HANDIN_BYTES)])], schema=SCHEMA)
        self._sent.set()
        yield pa.record_batch([pa.array([b"more"])], schema=SCHEMA)

    async def aclose(self) -> None:
        self.closed = True


def test_what_was_sent_to_a_worker_that_is_gone_is_given_up() -> None:
    async def main() -> dict[str, int]:
        sent = asyncio.Event()
        worker, typed = Gone(sent), Typed(sent)
        exchange = AsyncExchange(cast(Worker, worker), "demo", DeviceSession(device="demo"), SCHEMA, typed)
        with pytest.raises(TransportClosed, match="worker 0 has ended"):
            await exchange.opened()
        assert typed.closed
        # With it ends the thread that handed in: it would wait for room for ever, and the loop for it.
        await asyncio.get_running_loop().shutdown_default_executor()
        return worker.governor.stats()

    assert asyncio.run(main())["held"] == 0
