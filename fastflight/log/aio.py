"""The log on an event loop: waits for the disk happen in other threads.

`append` encodes the batch on the loop, and the store's own thread writes it. Reading, statistics and maintenance go to
a thread through `off_loop`. Reading fetches several items at a time, so that a small batch does not cost a thread
switch each.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from fastflight.concurrency import off_loop
from fastflight.log.batch_log import EVERYTHING, Extent, LogStatistics, Missing, NumberedRows, Range, StoreStatistics
from fastflight.log.commit import CommitTicket
from fastflight.log.compaction import compact
from fastflight.log.store import Log, Store

# How much one thread switch fetches: enough to make its cost small, and little enough for memory.
LOT_BYTES = 2 * 1024 * 1024
LOT_ITEMS = 256


class AsyncLog:
    """One log of an `AsyncStore`."""

    def __init__(self, log: Log) -> None:
        self._log = log

    @property
    def log(self) -> Log:
        """The same log for threads."""
        return self._log

    @property
    def name(self) -> str:
        return self._log.name

    @property
    def schema(self) -> pa.Schema:
        return self._log.schema

    @property
    def next_seq(self) -> int:
        return self._log.next_seq

    async def append(
        self, batch: pa.RecordBatch, *, expected: int | None = None, first: int | None = None, paused_until: int = 0
    ) -> CommitTicket:
        """Append `batch`: await the returned ticket until it is durable.

        Waits first while too much data waits for the disk. Arguments and errors are those of `BatchLog.append`.
        """
        return await self._log.append_soon(batch, expected, first, paused_until)

    async def read(self, wanted: Range = EVERYTHING) -> AsyncGenerator[NumberedRows | Missing, None]:
        """As `BatchLog.read`. Close the generator if you stop before its end."""
        items = self._log.read(wanted)
        fetching = False
        try:
            while True:
                fetching = True
                lot = await off_loop(_next_lot, items, discard=lambda _: items.close())
                fetching = False
                if not lot:
                    return
                for item in lot:
                    yield item
        finally:
            if not fetching:  # else `discard` closes them after the fetch
                items.close()

    async def extents(self, wanted: Range = EVERYTHING) -> list[Extent]:
        """As `BatchLog.extents`."""
        return await off_loop(self._log.extents, wanted)

    async def trim(self, before_seq: int) -> CommitTicket:
        """As `BatchLog.trim`."""
        return self._log.trim(before_seq)

    async def statistics(self) -> LogStatistics:
        """As `BatchLog.statistics`."""
        return await off_loop(self._log.statistics)


class AsyncStore:
    """A `Store` for use from one or several event loops. Create it with `await AsyncStore.create(folder)`."""

    def __init__(self, store: Store) -> None:
        self.store = store

    @classmethod
    async def create(cls, folder: str | Path, **options: Any) -> AsyncStore:
        """Open `folder` as `Store(folder, **options)` does."""
        return cls(await off_loop(lambda: Store(folder, **options), discard=Store.close))

    def names(self) -> list[str]:
        return self.store.names()

    async def open(self, name: str, schema: pa.Schema) -> AsyncLog:
        """As `BatchStore.open`."""
        return AsyncLog(self.store.open(name, schema))

    async def log(self, name: str) -> AsyncLog:
        """As `BatchStore.log`."""
        return AsyncLog(self.store.log(name))

    def statistics(self) -> StoreStatistics:
        return self.store.statistics()

    async def sweep(self) -> int:
        """As `Store.sweep`."""
        return await off_loop(self.store.sweep)

    async def compact(self) -> list[str]:
        """As `compaction.compact`."""
        return await off_loop(compact, self.store)

    async def aclose(self) -> None:
        """Write the appends that wait, and close the store."""
        await off_loop(self.store.close)

    async def __aenter__(self) -> AsyncStore:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()


def _next_lot(items: Iterator[NumberedRows | Missing]) -> list[NumberedRows | Missing]:
    """Return the next items, up to `LOT_ITEMS` or about `LOT_BYTES`; an empty list at the end."""
    lot: list[NumberedRows | Missing] = []
    size = 0
    for item in items:
        lot.append(item)
        size += item.batch.nbytes if isinstance(item, NumberedRows) else 0
        if size >= LOT_BYTES or len(lot) >= LOT_ITEMS:
            break
    return lot
