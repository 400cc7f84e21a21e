"""A source made of functions, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pyarrow as pa

from fastflight.service import DataSource
from fastflight.service.requests import Request
from fastflight.service.source import Acknowledge, Summary

AsyncWrite = Callable[[Any, pa.Schema, AsyncIterator[pa.RecordBatch], Acknowledge], Awaitable[Summary]]


class FunctionSource(DataSource[Any]):
    """The source of `request`, with functions by the names of `DataSource`."""

    def __init__(self, request: type[Request], **functions: Callable[..., Any]) -> None:
        self.request = request
        vars(self).update(functions)


def sync_write(awrite: AsyncWrite) -> Callable[..., Summary]:
    """The same write for a server that calls it in a thread, and that waits there for each batch."""

    def write(
        request: Request, schema: pa.Schema, batches: Iterator[pa.RecordBatch], acknowledge: Acknowledge
    ) -> Summary:
        async def run() -> Summary:
            async def each() -> AsyncIterator[pa.RecordBatch]:
                for batch in batches:
                    yield batch

            return await awrite(request, schema, each(), acknowledge)

        return asyncio.run(run())

    return write
