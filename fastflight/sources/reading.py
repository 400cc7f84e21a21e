"""From a source's generator to the answer that an edge reads.

Device sources are written as generators of lots: lists of batches, empty lists while the device is silent. `begin` and
`abegin` run such a generator until the schema is known, which is when errors before the first row have been raised,
and give the rest as a `Reading`. An empty list becomes a batch without rows: the edge gets the word, to see whether
anybody still listens. Closing the reading closes the generator, even one that was not advanced again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Generator
from typing import Protocol, TypeAlias

import pyarrow as pa

from fastflight.service.source import AsyncReading, Noted, Reading, Summary
from fastflight.tables.bare import empty

Lot: TypeAlias = list[pa.RecordBatch | Noted]


class Rows(Protocol):
    """Where the rows come from: knows the schema at the latest when they have ended."""

    @property
    def schema(self) -> pa.Schema | None: ...

    def summary(self) -> Summary: ...


def begin(rows: Rows, lots: Generator[Lot, None, None]) -> Reading:
    """Advance `lots` until the schema of `rows` is known. Closes `lots` if that fails."""
    ready: Lot = []
    try:
        for lot in lots:
            ready += lot
            if rows.schema is not None:
                break
        schema = pa.schema([]) if rows.schema is None else rows.schema  # one without columns is false
        return Reading(schema, Batches(schema, ready, lots), rows.summary)
    except BaseException:
        lots.close()
        raise


async def abegin(rows: Rows, lots: AsyncGenerator[Lot, None]) -> AsyncReading:
    """As `begin`, on an event loop."""
    ready: Lot = []
    try:
        async for lot in lots:
            ready += lot
            if rows.schema is not None:
                break
        schema = pa.schema([]) if rows.schema is None else rows.schema  # one without columns is false
        return AsyncReading(schema, AsyncBatches(schema, ready, lots), rows.summary)
    except BaseException:
        await lots.aclose()
        raise


class Batches:
    """The batches of `ready`, then those of `lots`. A class, because a generator that never ran cannot be closed."""

    def __init__(self, schema: pa.Schema, ready: Lot, lots: Generator[Lot, None, None]) -> None:
        self._silence = empty(schema)
        self._ready = deque(ready)
        self._lots = lots

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> pa.RecordBatch | Noted:
        if not self._ready:
            self._ready += next(self._lots)
        return self._ready.popleft() if self._ready else self._silence

    def close(self) -> None:
        """Give back what the generator holds."""
        self._lots.close()


class AsyncBatches:
    """As `Batches`, on an event loop."""

    def __init__(self, schema: pa.Schema, ready: Lot, lots: AsyncGenerator[Lot, None]) -> None:
        self._silence = empty(schema)
        self._ready = deque(ready)
        self._lots = lots

    def __aiter__(self) -> AsyncBatches:
        return self

    async def __anext__(self) -> pa.RecordBatch | Noted:
        if not self._ready:
            self._ready += await anext(self._lots)
        return self._ready.popleft() if self._ready else self._silence

    async def aclose(self) -> None:
        """Give back what the generator holds."""
        await self._lots.aclose()
